package webhook_test

import (
	"os"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// TestMain has the machine in a zone west of Greenwich: times and days are those of UTC all the same.
func TestMain(m *testing.M) {
	time.Local = time.FixedZone("west", -8*60*60)
	os.Exit(m.Run())
}

func TestAppendTime(t *testing.T) {
	t.Parallel()
	for _, at := range []int64{0, 1, 999, 1000, -1, 1_800_000_000_007, 1_800_000_000_070, 1_800_000_000_700, 1_709_164_800_000, 253_402_300_799_999, 253_402_300_800_000} {
		want := "[" + time.UnixMilli(at).UTC().Format(webhook.TimeFormat)
		if got := string(webhook.AppendTime([]byte("["), at)); got != want {
			t.Errorf("%d: %s, want %s", at, got, want)
		}
	}
}
