package publicid_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.jetify.com/typeid"
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

// TestWhatIsNoID has texts that Keyhook did not make.
func TestWhatIsNoID(t *testing.T) {
	t.Parallel()
	ids := publicid.Maker{Salt: []byte("salt")}
	id := ids.ID(access.EventID, 7, 1e12)
	version4 := typeid.Must(typeid.FromUUIDWithPrefix("evt", "01890a5d-ac96-474b-bcce-b302099a8057")).String()
	variant0 := typeid.Must(typeid.FromUUIDWithPrefix("evt", "01890a5d-ac96-7000-3cce-b302099a8057")).String()
	for _, text := range []string{"", "evt_", "sub_" + id[4:], id + "0", id[4:], "evt_" + strings.Repeat("0", 26), version4, variant0} {
		if row, at, ok := ids.Row(access.EventID, text); ok {
			t.Errorf("%q is row %d at %d", text, row, at)
		}
	}
}

// TestNeighboursLookUnrelated because the row in an id is masked by the salt, the type and the time.
func TestNeighboursLookUnrelated(t *testing.T) {
	t.Parallel()
	const at, random = 1e12, 16 // the first 16 characters have the type and the time
	ids := publicid.Maker{Salt: []byte("salt")}
	seen := map[string]string{}
	for name, id := range map[string]string{
		"one":                 ids.ID(access.EventID, 7, at),
		"with another salt":   publicid.Maker{Salt: []byte("pepper")}.ID(access.EventID, 7, at),
		"of another type":     ids.ID(access.SubscriptionID, 7, at),
		"a millisecond later": ids.ID(access.EventID, 7, at+1),
		"of another row":      ids.ID(access.EventID, 8, at),
	} {
		if other, ok := seen[id[random:]]; ok {
			t.Errorf("an id %s ends like one %s", name, other)
		}
		seen[id[random:]] = name
	}
}
