package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/cli/client"
)

// Not parallel: it sets the environment.
func TestUsageAsCSV(t *testing.T) {
	const text, shown = "period,name\n2030-01,\"'=1+1\"\n2030-01,\x1b[2J\u202e\n", "period,name\n2030-01,\"'=1+1\"\n2030-01,\\x1b[2J\\u202e\n"
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Accept") + " " + r.URL.RequestURI() + r.Header.Get("X-Organization-Id")
		switch r.URL.Query().Get("step") {
		case "month":
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "day":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"type":"about:blank","title":"Bad Request","status":400,"detail":"No.","code":"invalid_parameter","request_id":"x"}`)
		default:
			_, _ = io.WriteString(w, text)
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv(client.EnvURL, server.URL)
	t.Setenv(client.EnvToken, "kat_x")

	code, stdout, stderr := run(t, []string{"usage", "organizations", "--organization", "all", "--csv"})
	if code != 0 || stdout != shown || stderr != "" || asked != "text/csv /api/v1/usage/organizations/?organization=all" {
		t.Errorf("code %d, %q, %q; asked %q", code, stdout, stderr, asked)
	}
	code, _, stderr = run(t, []string{"usage", "keys", "--step", "month", "--csv"})
	if code != 1 || !strings.Contains(stderr, "the response is not complete") {
		t.Errorf("of a part: code %d, %q", code, stderr)
	}
	code, stdout, stderr = run(t, []string{"usage", "keys", "--step", "day", "--csv"})
	if code != 1 || stdout != "" || !strings.Contains(stderr, "No.") {
		t.Errorf("of a refusal: code %d, %q, %q", code, stdout, stderr)
	}
	for _, flag := range []string{"--limit=1", "--all", "--cursor=x"} {
		if code, _, stderr = run(t, []string{"usage", "keys", flag, "--csv"}); code != 2 || !strings.Contains(stderr, "exclude each other") {
			t.Errorf("%s: code %d, %q", flag, code, stderr)
		}
	}
	if code, _, _ = run(t, []string{"keys", "list", "--csv"}); code != 2 {
		t.Errorf("a list without CSV: code %d", code)
	}
}
