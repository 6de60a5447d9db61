package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// errNotHere is that the system does not tell what /proc of Linux tells.
var errNotHere = errors.New("not on this system")

// ticksPerSecond is the unit of processor times in /proc, the same on every Linux that Go runs on.
const ticksPerSecond = 100

// processorTime returns how long a process has had a processor so far, itself and the kernel for it.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, errNotHere
	}
	// The second field is the name in brackets, in which anything may stand; utime and stime are the 14th and the 15th.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, errNotHere
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, errNotHere
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// memory returns a figure of /proc/PID/status in bytes, as VmRSS, what is resident, or VmHWM, its peak.
func memory(pid int, name string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, errNotHere
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name+":"); found {
			kilobytes, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				return 0, errNotHere
			}
			return kilobytes * 1024, nil
		}
	}
	return 0, errNotHere
}

// memoryOf measures the server's memory in megabytes.
func (b *bench) memoryOf(field, name, title string, atMost float64) measurement {
	bytes, err := memory(b.server.process.Process.Pid, field)
	return measurement{name: name, title: title, value: bytes / 1e6, unit: "MB", target: target{atMost: atMost}, absent: err != nil}
}

func (b *bench) peakMemory(name, title string, atMost float64) measurement {
	return b.memoryOf("VmHWM", name, title, atMost)
}

// processes is the processor time of all that takes part: server, receiver and this process, which publishes.
type processes struct {
	server, receiver, publisher time.Duration
	absent                      bool
}

func processorTimes(server, receiver *child) processes {
	var p processes
	for pid, into := range map[int]*time.Duration{
		server.process.Process.Pid:   &p.server,
		receiver.process.Process.Pid: &p.receiver,
		os.Getpid():                  &p.publisher,
	} {
		var err error
		if *into, err = processorTime(pid); err != nil {
			p.absent = true
		}
	}
	return p
}

// perEvent measures what n events have cost since before.
func (p processes) perEvent(before processes, n int) []measurement {
	each := func(name, title string, spent time.Duration, t target) measurement {
		return measurement{name: name, title: title, value: spent.Seconds() * 1000 / float64(n), unit: "ms", target: t, absent: p.absent}
	}
	server, receiver, publisher := p.server-before.server, p.receiver-before.receiver, p.publisher-before.publisher
	return []measurement{
		each("cpu_per_event", "processor time an event, all in", server+receiver+publisher, target{atMost: 0.15}),
		each("cpu_per_event_server", "  of it the server", server, target{}),
		each("cpu_per_event_receiver", "  of it the receiver", receiver, target{}),
		each("cpu_per_event_publisher", "  of it the publisher", publisher, target{}),
	}
}
