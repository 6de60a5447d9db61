package alert_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch/alert"
	"github.com/keyhook/keyhook/storage/clock"
)

var errRefused = errors.New("the disk is full: writes fail until there is free space")

func TestAConditionIsToldWhenItBeginsAndWhenItEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		present      conditions
		begins, ends []string
	}{
		"late deliveries": {
			conditions{free: 1 << 40, late: errors.New("deliveries have waited")},
			[]string{"Keyhook: deliveries are late", "Since 2000-01-01 00:00:", "deliveries have waited. Deliveries that wait: 0", "do run_doctor"},
			[]string{"Keyhook: deliveries are no longer late", "began at 2000-01-01 00:00:"},
		},
		"little space": {
			conditions{free: 200 << 20},
			[]string{"the disk is nearly full", "200 MiB are free", "storage.retention_events"}, []string{"enough free space again"},
		},
		"refused writes": {
			conditions{free: 1 << 40, refuses: errRefused},
			[]string{"the database refuses writes", errRefused.Error(), "do run_doctor"}, []string{"the database takes writes again"},
		},
		"results that cannot be saved": {
			conditions{free: 1 << 40, unsaved: 3},
			[]string{"results of attempts cannot be saved", "cannot be saved: 3", "do run_doctor"}, []string{"all results of attempts are saved again"},
		},
		"a clock that has jumped by months": {
			conditions{free: 1 << 40, clock: clock.State{Seen: 1e10, Doubt: &clock.Doubt{}}},
			[]string{"the clock of the server has jumped by a week or more", "2777.8 hours ahead", "deleting starts again at 1970-04-27T17:46:40Z.", "set it right before Keyhook trusts it"},
			[]string{"the clock of the server is trusted again"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
				x.set(tt.present)
				if m := x.one(t, 20*time.Second, tt.begins...); m.members["is_over"] != false {
					t.Errorf("it begins: %v", m.members)
				}
				x.none(t, long)
				if tt.present.refuses == nil { // otherwise only memory knows that it was told
					x.restart(t)
					x.none(t, long)
				}
				x.set(healthy)
				if m := x.one(t, 2*time.Minute, tt.ends...); m.members["is_over"] != true {
					t.Errorf("it ends: %v", m.members)
				}
				x.restart(t)
				x.none(t, long)
			})
		})
	}
}

// TestASmallJumpIsNotTold has the jumps of a machine that is off at night. Then a large jump comes, and somebody corrects a part of it.
func TestASmallJumpIsNotTold(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		jump := func(days int64) {
			x.set(conditions{free: 1 << 40, clock: clock.State{Seen: days * 24 * time.Hour.Milliseconds(), Doubt: &clock.Doubt{}}})
		}
		jump(6)
		x.none(t, long)
		jump(-8)
		x.one(t, 20*time.Second, "192.0 hours back")
		jump(1)
		x.none(t, long)
		x.restart(t) // it forgets how large the jump was
		x.none(t, long)
		x.set(healthy)
		x.one(t, 20*time.Minute, "the clock of the server is trusted again")
	})
}

func TestAConditionThatEndedWhileTheServerWasStopped(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		x.set(conditions{})
		x.one(t, 20*time.Second, "the disk is nearly full")
		x.stop()
		x.end()
		x.set(healthy)
		x.start(t)
		x.one(t, 20*time.Minute, "enough free space again")
	})
}

func TestAConditionThatFlaps(t *testing.T) {
	t.Run("is told, although it is never present for long", func(t *testing.T) {
		inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
			var sent []sentMessage
			for range 20 {
				x.set(conditions{free: 1 << 40, refuses: errRefused})
				sent = append(sent, x.take(10*time.Second)...)
				x.set(healthy)
				sent = append(sent, x.take(5*time.Second)...)
			}
			if len(sent) != 1 || sent[0].members["is_over"] != false {
				t.Errorf("sent %v", sent)
			}
			x.one(t, 20*time.Minute, "the database takes writes again")
		})
	})
	t.Run("is one message in each interval", func(t *testing.T) {
		inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
			var sent []sentMessage
			for range 20 {
				x.set(conditions{free: 1 << 40, late: errRefused})
				sent = append(sent, x.take(90*time.Second)...)
				x.set(healthy)
				sent = append(sent, x.take(90*time.Second)...)
			}
			if len(sent) < 2 || len(sent) > 5 { // an hour is 4 intervals
				t.Errorf("%d messages", len(sent))
			}
			for i := 1; i < len(sent); i++ {
				if after := sent[i].at.Sub(sent[i-1].at); after < interval {
					t.Errorf("message %d came after %s", i, after)
				}
				if sent[i].title == sent[i-1].title {
					t.Errorf("message %d repeats %q", i, sent[i].title)
				}
			}
		})
	})
	t.Run("within a minute is one condition", func(t *testing.T) {
		inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
			sent := 0
			for range 40 {
				x.set(conditions{free: 1 << 40, late: errRefused})
				sent += len(x.take(30 * time.Second))
				x.set(healthy)
				sent += len(x.take(30 * time.Second))
			}
			if sent != 1 {
				t.Errorf("%d messages", sent)
			}
			x.one(t, long, "no longer late")
		})
	})
	t.Run("for some seconds is not told", func(t *testing.T) {
		inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
			x.set(conditions{free: 1 << 40, late: errRefused})
			x.none(t, 6*time.Second)
			x.set(healthy)
			x.none(t, long)
		})
	})
}

func TestWhileTheDatabaseRefusesWrites(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		owner, subs := x.subscribe(t, "acme", 1)
		x.disable(t, owner, subs...)
		x.set(conditions{free: 1 << 40, refuses: errRefused, late: errRefused, unsaved: 7})
		sent := x.take(long)
		if len(sent) != 2 {
			t.Fatalf("only the cause and the subscription must be told, each once: %+v", sent)
		}
		x.set(healthy)
		x.one(t, 20*time.Minute, "takes writes again")
		x.restart(t) // memory has stored of what it told
		x.none(t, long)
	})
}

func TestTheCertificateIsToldTwoWeeksBeforeItExpires(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		x.stop()
		x.end()
		day := 24 * time.Hour
		x.options.Certificate = &tls.Config{Certificates: []tls.Certificate{{Leaf: &x509.Certificate{NotAfter: time.Now().Add(14*day + time.Hour)}}}}
		x.start(t)
		x.none(t, time.Hour-time.Minute)
		x.one(t, 2*time.Minute, "certificate expires soon", "expires at 2000-01-15 01:00:00 UTC", "server.tls_cert_file")
		x.none(t, long)
		x.stop()
		x.end()
		x.options.Certificate.Certificates[0].Leaf.NotAfter = time.Now().Add(90 * day)
		x.start(t)
		x.one(t, long, "certificate was renewed")
		if len(alert.Kinds()) != 11 {
			t.Error("a kind has no test here")
		}
	})
}

func TestAClockThatWasAheadSilencesNoAlert(t *testing.T) {
	inVirtualTime(t, oneChannel, func(t *testing.T, x *fixture) {
		x.stop()
		sent := map[alert.Kind]int64{}
		for _, kind := range alert.Kinds() {
			sent[kind] = time.Now().AddDate(1, 0, 0).UnixMilli() // as the last process saved it
		}
		if err := x.store.SaveAlertState(t.Context(), map[string]any{"sent": sent}); err != nil {
			t.Fatal(err)
		}
		x.end()
		x.start(t)
		x.set(conditions{free: 1})
		x.none(t, interval-time.Minute)
		x.one(t, 3*time.Minute, "free")
	})
}
