package exchange_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
)

// TestLargeReadsAreSentInGzip has lists that are large, small, written by a POST, and secret.
func TestLargeReadsAreSentInGzip(t *testing.T) {
	t.Parallel()
	f, as, _ := filled(t)
	f.Do(t, "POST /api/v1/webhooks/subscriptions/", as, `{"url":null,"external_id":"reader"}`).Want(t, 201, "")
	f.Do(t, "POST /api/v1/events/", as, `{"type":"a.b","data":{"text":"`+strings.Repeat("long ", 600)+`"}}`).Want(t, 202, "")
	long := `"` + strings.Repeat("long ", 600) + `"`
	for name, tt := range map[string]struct {
		line, body, accepts string
		zipped              bool
	}{
		"a large list":             {"GET /api/v1/events/", "", "gzip", true},
		"among others":             {"GET /api/v1/events/", "", "br, gzip, deflate", true},
		"refused":                  {"GET /api/v1/events/", "", "gzip;q=0", false},
		"not asked for":            {"GET /api/v1/events/", "", "", false},
		"a small body":             {"GET /api/v1/events/?limit=1", "", "gzip", false},
		"a refusal of a long path": {"GET /api/v1/events/?type=" + strings.Repeat("a", 3000), "", "gzip", false},
		"a feed, whose signatures are secret beside the text of others": {"GET /api/v1/webhooks/subscriptions/reader/feed/", "", "gzip", false},
		"not a read": {"POST /api/v1/events/batch/", `{"events":[` + strings.Repeat(`{"type":"a.b","data":{}},`, 99) + `{"type":"a.b","data":{"text":` + long + `}}]}`, "gzip", false},
	} {
		method, path, _ := strings.Cut(tt.line, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, "http://keyhook.test"+path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", as)
		r.Header.Set("Content-Type", "application/json")
		if tt.accepts != "" {
			r.Header.Set("Accept-Encoding", tt.accepts)
		}
		got := f.Handle(r)
		text := servertest.Read(t, got)
		if zipped := got.Header.Get("Content-Encoding") == "gzip"; zipped != tt.zipped {
			t.Errorf("%s: in gzip: %t, %d bytes", name, zipped, len(text))
		} else if zipped {
			z, err := gzip.NewReader(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(z)
			if err != nil || !strings.HasPrefix(string(plain), `{"data":[`) || !strings.HasSuffix(string(plain), "}\n") || len(plain) < 2*len(text) {
				t.Errorf("%s: %v, %d bytes of %d: %.60s", name, err, len(text), len(plain), plain)
			}
		}
		if isRead := method == "GET" && !strings.HasSuffix(tt.line, "/feed/") && len(text) > 1400 && tt.line != "GET /api/v1/events/?limit=1"; isRead && got.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: Vary is %q", name, got.Header.Get("Vary"))
		}
	}
}
