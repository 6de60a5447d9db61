package explain_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/explain"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestHintOf(t *testing.T) {
	t.Parallel()
	for failure, want := range map[string]explain.Hint{
		"": "", "deactivated by ana": "", "http_status: 101": "", "timeout": explain.TooSlow, "unknown: 401": "",
		"http_status: 300": explain.Redirected, "http_status: 302 to www.example.com": explain.Redirected,
		"http_status: 400": explain.ReceiverRefuses, "http_status: 401": explain.CheckSecret, "http_status: 403": explain.CheckSecret,
		"http_status: 404": explain.CheckPath, "http_status: 405": explain.CheckPath, "http_status: 410": explain.CheckPath,
		"http_status: 413": explain.ReceiverRefuses, "http_status: 429": explain.ReceiverRateLimit, "http_status: 499": explain.ReceiverRefuses,
		"http_status: 500": explain.ReceiverError, "http_status: 503": explain.ReceiverError,
		"protocol_error: the response is not HTTP": explain.ReceiverError, "protocol_error: nothing was sent: the URL is not valid": "",
		"connect_error: " + webhook.ConnectionLost: explain.ReceiverError, "connect_error: connection refused": explain.CheckHost,
		"dns_error: the host name does not exist": explain.CheckHost, "tls_error: the handshake failed": explain.CheckCertificate,
	} {
		if got := explain.HintOf(failure); got != want {
			t.Errorf("%q gives %q, want %q", failure, got, want)
		}
	}
}

// TestEachFailureHasAHint: each class of failure has one, the console has its sentence, and the API describes it.
func TestEachFailureHasAHint(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(house, "server/console/static/pages/subscription/mend.js"))
	if err != nil {
		t.Fatal(err)
	}
	api, err := os.ReadFile(filepath.Join(house, "server/openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	failures := []string{"http_status: 302", "http_status: 400", "http_status: 401", "http_status: 404", "http_status: 429", "http_status: 500"}
	for _, class := range webhook.FailureClasses() {
		if class != webhook.HTTPStatus {
			failures = append(failures, string(class)+": x")
		}
	}
	shown := map[explain.Hint]bool{}
	for _, failure := range failures {
		hint := explain.HintOf(failure)
		shown[hint] = true
		if hint.Sentence() == "" || !strings.Contains(string(page), "\n  "+string(hint)+": '"+hint.Sentence()+"',\n") {
			t.Errorf("the console does not say of %s: %s", hint, hint.Sentence())
		}
		if !strings.Contains(string(api), "\n        - `"+string(hint)+"`: ") {
			t.Errorf("the API does not describe %s", hint)
		}
	}
	if rows := strings.Count(string(page[:strings.Index(string(page), "};")]), "',\n"); rows != len(shown) {
		t.Errorf("the console has %d hints, and %d are given", rows, len(shown))
	}
}
