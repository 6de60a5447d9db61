package publicid_test

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestTimesOfAnyClock makes ids and texts of any time that a wrong clock may have written.
func TestTimesOfAnyClock(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^evt_[0-7][0-9a-hjkmnp-tv-z]{25}$`)
	last := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() - 1
	rapid.Check(t, func(r *rapid.T) {
		row := rapid.Int64Range(1, 1<<40).Draw(r, "row")
		at := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, last), rapid.Int64Range(-1<<45, 1<<50)).Draw(r, "at")
		ids := publicid.Maker{Salt: []byte("salt")}
		id := ids.ID(access.EventID, row, at)
		found, foundAt, ok := ids.Row(access.EventID, id)
		if !form.MatchString(id) {
			r.Errorf("id %q", id)
		}
		if at >= 0 && at <= last && (!ok || found != row || foundAt != at) {
			r.Errorf("row %d at %d is found as %d at %d: %v", row, at, found, foundAt, ok)
		}
		text, err := json.Marshal(string(webhook.AppendTime(nil, at)))
		if err != nil || at >= 0 && at <= last && len(text) != len(webhook.TimeFormat)+2 {
			r.Errorf("%d is written as %s: %v", at, text, err)
		}
	})
}
