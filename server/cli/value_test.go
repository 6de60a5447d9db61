package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestExpiresInTakesDays compares what the command sends with the time that was meant.
func TestExpiresInTakesDays(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "12h": 12 * time.Hour, "1.5h": 90 * time.Minute, "30d": 30 * day, "1d12h": 36 * time.Hour, "0d1s": time.Second,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var sent struct {
				ExpiresAt time.Time `json:"expires_at"`
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err == nil {
					err = json.Unmarshal(body, &sent)
				}
				if err != nil {
					t.Error(err)
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"id":"key_01h455vb4pex5vsknk084sn02q"}`) // the client sees an error
			}))
			defer server.Close()
			before := time.Now()
			code, _, stderr := run(t, []string{"keys", "create", "--name=x", "--scope=a:b", "--expires-in=" + text, "--url=" + server.URL, "--token=kat_x"})
			if got := sent.ExpiresAt.Sub(before.Add(want)); code != 0 || got < -time.Millisecond || got > time.Minute {
				t.Errorf("code %d, %s too late: %s", code, got, stderr)
			}
		})
	}
}
