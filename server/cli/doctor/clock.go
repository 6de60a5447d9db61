package doctor

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// The differences between clocks that matter: receivers refuse signatures that are some minutes old.
const (
	smallSkew = 5 * time.Second
	largeSkew = 2 * time.Minute
)

// checkSkew compares the clock behind a response with the clock of this machine. The Date header has whole seconds.
func (r *report) checkSkew(who string, header http.Header, now time.Time) {
	const check = "clock"
	at, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	switch by := now.Sub(at).Round(time.Second); {
	case by.Abs() > largeSkew:
		r.problem(check, "synchronize both clocks with NTP, because receivers refuse old signatures", "The clock of %s differs from the clock of this machine by %s.", who, by)
	case by.Abs() > smallSkew:
		r.warning(check, "synchronize both clocks with NTP", "The clock of %s differs from the clock of this machine by %s.", who, by)
	default:
		r.ok(check, "The clock of %s agrees with the clock of this machine.", who)
	}
}

// checkHardwareClock compares the system's clock with the clock that runs while the machine is off. Only Linux shows that
// one, and most virtual machines have none.
func (r *report) checkHardwareClock() {
	text, err := os.ReadFile("/sys/class/rtc/rtc0/since_epoch")
	if err != nil {
		return
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return
	}
	if by := time.Since(time.Unix(seconds, 0)).Round(time.Second); by.Abs() > largeSkew {
		r.warning("clock", "synchronize the system clock with NTP, and then run: hwclock --systohc --utc",
			"The system clock and the hardware clock differ by %s, so one of them is wrong.", by)
	}
}
