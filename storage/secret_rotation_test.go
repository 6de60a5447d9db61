package storage_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// rotated rotates the secret of the subscription and returns the new one.
func (x fixture) rotated(t *testing.T, r webhook.Rotation) (webhook.Secret, error) {
	t.Helper()
	_, secret, err := x.Subscriptions.RotateSecret(t.Context(), x.Actor(), x.Org(), x.Sub.ID, r)
	return secret, err
}

// TestRotationWithinAnOverlap checks that the previous secret works until the promised time, and is deleted later.
func TestRotationWithinAnOverlap(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		defer stop()
		x := fixtureOf(t, store)
		signs := func(current, previous webhook.Secret) {
			t.Helper()
			at, err := x.Queue.Target(t.Context(), x.Sub.RowID)
			if err != nil || at.Secret.Reveal() != current.Reveal() || at.Previous.Reveal() != previous.Reveal() {
				t.Errorf("it signs with other secrets; %v", err)
			}
		}
		kept := func(want int) {
			t.Helper()
			if n, err := x.PreviousSecrets(t.Context()); err != nil || n != want {
				t.Errorf("%d previous secrets are kept, want %d, error %v", n, want, err)
			}
		}
		overlap := webhook.Rotation{Overlap: 5 * time.Minute}
		first, err := x.rotated(t, webhook.Rotation{})
		if err != nil {
			t.Fatal(err)
		}
		second, err := x.rotated(t, overlap)
		if err != nil {
			t.Fatal(err)
		}
		signs(second, first)
		time.Sleep(5*time.Minute - time.Second)
		for _, r := range []webhook.Rotation{overlap, {}} {
			_, err := x.rotated(t, r)
			if f, ok := fault.As(err); !ok || f.Kind != fault.Conflict || f.Code != "overlap_in_progress" {
				t.Errorf("rotated within the overlap: %v", err)
			}
		}
		signs(second, first)
		kept(1)
		time.Sleep(3 * time.Second)
		kept(0)
		signs(second, webhook.Secret{})

		third, err := x.rotated(t, overlap)
		if err != nil {
			t.Fatal(err)
		}
		fourth, err := x.rotated(t, webhook.Rotation{Overlap: time.Minute, Force: true})
		if err != nil {
			t.Fatal(err)
		}
		signs(fourth, third)
		log, err := x.AuditEvents(t.Context(), x.Org(), access.AuditFilter{Limit: 2, Type: access.SecretRotated})
		if err != nil || log[0].Details != `{"ended_overlap":true,"overlap_seconds":60,"url_host":"example.com"}` || log[1].Details != `{"ended_overlap":false,"overlap_seconds":300,"url_host":"example.com"}` {
			t.Errorf("%+v %v", log, err)
		}

		time.Sleep(time.Minute) // until the overlap ends
		if _, err := x.rotated(t, webhook.Rotation{Overlap: time.Minute}); err != nil {
			t.Errorf("at the end of an overlap: %v", err)
		}

		x.MoveClock(9 * aDay)
		time.Sleep(2 * time.Minute)
		kept(1) // the clock is in doubt
		if err := x.AcceptClock(t.Context(), x.Actor()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(61 * time.Second)
		kept(0)
		if _, err := x.rotated(t, overlap); err != nil {
			t.Fatal(err)
		}
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
			t.Fatal(err)
		}
		kept(0)
		storagetest.NoneGrows(t, store, map[string]string{"SELECT count(*) FROM subscriptions": "SCAN"}) // the test itself runs this count
	})
}
