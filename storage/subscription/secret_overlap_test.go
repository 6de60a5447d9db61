package subscription_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestAnOverlapEndsToTheMillisecond(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := storagetest.CustomerOf(t, store)
		rotate := func() error {
			_, _, err := x.Subscriptions.RotateSecret(t.Context(), x.Actor(), x.Org(), x.Sub.ID, webhook.Rotation{Overlap: time.Hour})
			return err
		}
		began := time.Now()
		if err := rotate(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(began.Add(time.Hour - time.Millisecond)))
		if err := rotate(); fault.KindOf(err) != fault.Conflict {
			t.Errorf("a millisecond before the end: %v", err)
		}
		time.Sleep(time.Until(began.Add(time.Hour)))
		if err := rotate(); err != nil {
			t.Errorf("at the end: %v", err)
		}
	})
}
