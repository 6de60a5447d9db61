package clock_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/storage/clock"
)

// TestMain has the machine in a zone west of Greenwich: times and days are those of UTC all the same.
func TestMain(m *testing.M) {
	time.Local = time.FixedZone("west", -8*60*60)
	os.Exit(m.Run())
}

// noon is a time that the clock shows at first.
var noon = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC).UnixMilli()

// seen is one observation: how much time has passed, and by how much more the clock has moved.
type seen struct {
	elapsed, jump time.Duration
}

func TestObserve(t *testing.T) {
	t.Parallel()
	const hour, day = time.Hour, 24 * time.Hour
	minute := seen{time.Minute, 0}
	for name, tt := range map[string]struct {
		sights []seen
		want   clock.Change
		jump   time.Duration // 0: the clock is trusted
		agreed time.Duration
	}{
		"a clock that runs is trusted":                              {[]seen{minute, minute}, clock.Nothing, 0, 0},
		"a jump of an hour is not doubted":                          {[]seen{{time.Second, hour}}, clock.Nothing, 0, 0},
		"many small jumps are not doubted":                          {[]seen{{time.Second, hour}, {time.Second, hour}, {0, hour}}, clock.Nothing, 0, 0},
		"a jump ahead is doubted":                                   {[]seen{{time.Second, 400 * day}}, clock.Jumped, 400 * day, 0},
		"a jump back is doubted":                                    {[]seen{{time.Second, -2 * hour}}, clock.Jumped, -2 * hour, 0},
		"a start after a long stop is doubted":                      {[]seen{{0, 2 * day}}, clock.Jumped, 2 * day, 0},
		"the doubt stays while the clock runs":                      {[]seen{{0, 2 * day}, minute}, clock.Nothing, 2 * day, time.Minute},
		"the doubt stays over a short stop":                         {[]seen{{0, 2 * day}, minute, {0, time.Minute}, minute}, clock.Nothing, 2*day + time.Minute, 2 * time.Minute},
		"a clock that ran for a day is trusted again":               {[]seen{{0, 2 * day}, {day - 1, 0}, {1, 0}}, clock.Confirmed, 0, 0},
		"a clock that was set right is trusted at once":             {[]seen{{time.Second, 400 * day}, minute, {time.Second, -400 * day}}, clock.Returned, 0, 0},
		"it may have been set right during a short stop":            {[]seen{{0, 400 * day}, minute, {0, -400*day + 30*time.Minute}}, clock.Returned, 0, 0},
		"another jump restarts the day":                             {[]seen{{0, 2 * day}, {20 * hour, 0}, {time.Second, 30 * day}}, clock.Jumped, 32 * day, 0},
		"a jump back restarts the day":                              {[]seen{{0, 9 * day}, {20 * hour, 0}, {0, -2 * hour}}, clock.Jumped, 9*day - 2*hour, 0},
		"a stop over a night does not":                              {[]seen{{0, 2 * day}, {8 * hour, 0}, {0, 16 * hour}}, clock.Jumped, 2*day + 16*hour, 8 * hour},
		"a stop of a day does not":                                  {[]seen{{0, 2 * day}, {8 * hour, 0}, {0, day}}, clock.Jumped, 3 * day, 8 * hour},
		"a longer stop restarts the day":                            {[]seen{{0, 2 * day}, {8 * hour, 0}, {0, day + 1e6}}, clock.Jumped, 3*day + 1e6, 0},
		"a machine that is off at night gets there":                 {[]seen{{0, 2 * day}, {8 * hour, 0}, {0, 16 * hour}, {8 * hour, 0}, {0, 16 * hour}, {8 * hour, 0}}, clock.Confirmed, 0, 0},
		"a first time that was wrong is forgotten once it is right": {[]seen{{0, -50 * 365 * day}, minute, {time.Second, 50 * 365 * day}}, clock.Returned, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state, _ := clock.State{}.Observe(0, noon)
			at, jumped, change := noon, noon, clock.Nothing
			for _, s := range tt.sights {
				at += (s.elapsed + s.jump).Milliseconds()
				if state, change = state.Observe(s.elapsed, at); change == clock.Jumped {
					jumped = at
				}
			}
			if change != tt.want || state.Jump() != tt.jump || state.Trusted() != (tt.jump == 0) {
				t.Errorf("change %d, want %d; jump %s, want %s; %+v", change, tt.want, state.Jump(), tt.jump, state)
			}
			if state.Seen != at || state.Doubt != nil && (state.Doubt.Agreed != tt.agreed || state.Doubt.Since != jumped) {
				t.Errorf("%+v, %+v, want %d seen, %s agreed and %d as the last jump", state, state.Doubt, at, tt.agreed, jumped)
			}
			if want := at + (clock.Steady - tt.agreed).Milliseconds(); !state.Trusted() && state.TrustedAt() != want {
				t.Errorf("trusted again at %d, want %d", state.TrustedAt(), want)
			}
			if (state.Warning() == "") != state.Trusted() {
				t.Errorf("warning %q", state.Warning())
			}
		})
	}
}

func TestWarning(t *testing.T) {
	t.Parallel()
	for jump, want := range map[time.Duration]string{
		48 * time.Hour: "The clock has jumped 48.0 hours ahead since 2030-01-31T12:00:00Z, the last trusted time. After a long stop or a restore this is normal. " +
			"Nothing is deleted by age for now. If the clock is wrong, set it right. " +
			"If it is right, do nothing: deleting starts again at 2030-02-03T12:00:00Z.",
		-3 * time.Hour:   "The clock has jumped 3.0 hours back since 2030-01-31T12:00:00Z, the last trusted time. Nothing is deleted by age for now.",
		61 * time.Minute: "The clock has jumped 1.0 hours ahead since",
		-60 * time.Hour:  "The clock has jumped 60.0 hours back since",
	} {
		state, _ := clock.State{Seen: noon}.Observe(0, noon+jump.Milliseconds())
		if got := state.Warning(); !strings.HasPrefix(got, want) {
			t.Errorf("%s:\n%s, want\n%s", jump, got, want)
		}
	}
}

// TestObserveAnything checks any series of clock values: the clock is trusted only if nothing has jumped for a day, or where it
// is back at what was expected.
func TestObserveAnything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		state, _ := clock.State{}.Observe(0, rapid.Int64Range(1, 1<<52).Draw(r, "first"))
		for range rapid.IntRange(1, 20).Draw(r, "sights") {
			elapsed := time.Duration(rapid.Int64Range(0, int64(30*time.Hour)).Draw(r, "elapsed"))
			now := state.Seen + elapsed.Milliseconds()
			if rapid.Bool().Draw(r, "jumps") {
				now = rapid.Int64Range(-1<<60, 1<<60).Draw(r, "now")
			}
			before := state
			var change clock.Change
			state, change = state.Observe(elapsed, now)
			if state.Seen != now {
				r.Fatalf("%+v has not seen %d", state, now)
			}
			if before.Trusted() != state.Trusted() && change == clock.Nothing {
				r.Fatalf("from %+v to %+v without a change", before, state)
			}
			if change == clock.Confirmed && before.Doubt.Agreed+elapsed < clock.Steady {
				r.Fatalf("%+v is trusted too early", before)
			}
			_ = state.Warning()
		}
	})
}

// TestAnAcceptedClockIsSavedAtOnce has the doubt saved a moment before somebody accepts the clock.
func TestAnAcceptedClockIsSavedAtOnce(t *testing.T) {
	t.Parallel()
	w := clock.NewWatch(slog.New(slog.DiscardHandler))
	w.Start(clock.State{Seen: time.Now().Add(-400 * 24 * time.Hour).UnixMilli()})
	if state := w.StateToSave(); state.Trusted() || w.SaveDue() {
		t.Fatalf("%+v is due again", state)
	}
	w.Accept()
	if !w.SaveDue() || !w.StateToSave().Trusted() {
		t.Error("the accepted clock is not due to be saved")
	}
}
