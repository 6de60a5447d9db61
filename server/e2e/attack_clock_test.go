package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A start with the clock 400 days ahead of the last one: everything looks older than the retention allows. Nothing is
// deleted, and /readyz says that the clock is doubted. Before, all history was gone within seconds, in silence.
func TestAttackClock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir)
	v := p.victim(t)
	p.end(terminate)
	path := filepath.Join(dir, "keyhook.db")
	backdate(t, path, 400*24*time.Hour)
	events := fmt.Sprintf("SELECT count(*) FROM events WHERE created_at < %d", time.Now().Add(-24*time.Hour).UnixMilli())
	before := count(t, path, events)

	p = start(t, dir)
	deadline := time.Now().Add(3 * time.Second)
	for count(t, path, events) == before && time.Now().Before(deadline) {
		sleep(t.Context(), 100*time.Millisecond)
	}
	if after := count(t, path, events); before < v.sent || after != before {
		t.Errorf("%d of %d events are left", after, before)
	}
	var ready struct {
		Checks map[string]struct{ Warning string }
	}
	if a, err := p.call(t.Context(), "GET", "/readyz/", nil); err != nil || json.Unmarshal(a.body, &ready) != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	for _, check := range ready.Checks {
		if strings.Contains(check.Warning, "clock") {
			return
		}
	}
	t.Errorf("no check warns of the clock: %+v", ready)
}
