package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
)

// delivered is a request that a receiver got.
type delivered struct {
	header http.Header
	body   []byte
}

// echo starts a receiver that answers with the headers of the request, as some do to help with mistakes.
func echo(t *testing.T) (url string, got chan delivered) {
	t.Helper()
	got = make(chan delivered, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_ = r.Header.Write(w)
		got <- delivered{r.Header, body}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/", got
}

// check checks a delivery: both signatures with a secret, and the headers.
func (d delivered) check(t *testing.T, secret string, headers map[string]string) {
	t.Helper()
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s.%s", d.header.Get("X-Service-Timestamp"), d.body)
	if want := hex.EncodeToString(mac.Sum(nil)); d.header.Get("X-Service-Signature") != want {
		t.Errorf("X-Service-Signature %q is not %q", d.header.Get("X-Service-Signature"), want)
	}
	if err := signature.VerifyStandard(secret, d.header, d.body, time.Now(), 0); err != nil {
		t.Errorf("webhook-signature: %v", err)
	}
	for name, value := range headers {
		if got := strings.Join(d.header.Values(name), ", "); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
}

// TestOwnHeadersAndSecret moves a receiver from another system to Keyhook: it keeps its secret and its token. They survive a
// kill, a new encryption key and a restart, and no file, response or log shows them.
func TestOwnHeadersAndSecret(t *testing.T) {
	t.Parallel()
	const canary, secret, raw = "canary-token-5f1c2a", "whsec_Y2FuYXJ5LXNlY3JldC1vZi10aGUtcmVjZWl2ZXI=", "canary-raw-secret-of-another-system"
	dir := t.TempDir()
	private := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(private, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	hidden := func(where, text string) {
		t.Helper()
		for _, plain := range []string{canary, secret, raw, "Y2FuYXJ5LXNl"} {
			if i := strings.Index(text, plain); i >= 0 {
				t.Errorf("%s holds %s: …%q", where, plain, text[max(0, i-60):i])
			}
		}
	}
	filesHide := func() {
		t.Helper()
		found, err := os.ReadDir(dir)
		if err != nil || len(found) < 2 {
			t.Fatalf("%v, error %v", found, err)
		}
		for name, text := range contentsOf(t, dir) {
			hidden(name, text)
		}
	}
	url, got := echo(t)
	arrived := func(event string) delivered {
		t.Helper()
		timeout := time.After(patience)
		for {
			select {
			case d := <-got:
				if d.header.Get("X-Service-Event-Id") == event { // the kill may repeat the delivery of an earlier one
					return d
				}
			case <-timeout:
				t.Fatal("no delivery")
			}
		}
	}

	p := start(t, dir, "KEYHOOK_LOG_LEVEL=debug")
	code, said := finish(t, keyhook(t, dir, "subscriptions", "create", "--url", url, "--external-id", "warehouse", "--event-types", "order.*",
		"--headers-file", file("headers", "Authorization: Bearer "+canary+"\n\nX-Tenant:seven\n"), "--secret-file", file("secret", secret+"\n"), "--quiet"))
	if code != 0 || strings.TrimSpace(said) != secret {
		t.Fatalf("create: %d %s", code, said)
	}
	headers := map[string]string{"Authorization": "Bearer " + canary, "X-Tenant": "seven"}
	arrived(p.publish(t, "order.created")).check(t, secret, headers)
	hidden("the log", p.said())
	p.end(syscall.SIGKILL)
	filesHide()

	succeed(t, dir, []string{"rekey"}, "Encrypted 1 signing secrets", "Encrypted the request headers of 1 subscriptions, too.")
	p = start(t, dir, "KEYHOOK_LOG_LEVEL=debug")
	arrived(p.publish(t, "order.created")).check(t, secret, headers)

	rotate := keyhook(t, dir, "subscriptions", "rotate-secret", "warehouse", "--overlap", "0s", "--secret-file", "-")
	rotate.Stdin = strings.NewReader(raw)
	if code, said := finish(t, rotate); code != 0 || !strings.Contains(said, raw) {
		t.Fatalf("rotate: %d %s", code, said)
	}
	succeed(t, dir, []string{"subscriptions", "update", "warehouse", "--headers-file", file("changed", "Authorization\nX-New: new\n")}, `{"Authorization":null,"X-New":null}`)
	arrived(p.publish(t, "order.created")).check(t, raw, map[string]string{"Authorization": "Bearer " + canary, "X-Tenant": "", "X-New": "new"})

	const path = "/api/v1/webhooks/subscriptions/warehouse/"
	var log struct {
		Data []struct {
			ID, Outcome  string
			ResponseBody string `json:"response_body"`
		}
	}
	for deadline := time.Now().Add(patience); ; sleep(t.Context(), 20*time.Millisecond) {
		if p.must(t, "GET", path+"deliveries/?outcome=succeeded", nil, &log); len(log.Data) == 3 || time.Now().After(deadline) {
			break
		}
	}
	if len(log.Data) != 3 || !strings.Contains(log.Data[0].ResponseBody, "Authorization: Bearer ***") {
		t.Errorf("log %+v", log)
	}
	var sent struct {
		Request struct{ Headers map[string]string }
	}
	p.must(t, "GET", path+"deliveries/"+log.Data[0].ID+"/", nil, &sent)
	if h := sent.Request.Headers; h["Authorization"] != "***" || h["X-New"] != "***" || h["X-Tenant"] != "" {
		t.Errorf("the attempt sent %v", h)
	}
	for _, line := range []string{path, "/api/v1/webhooks/subscriptions/", path + "deliveries/", path + "deliveries/" + log.Data[0].ID + "/", "/api/v1/audit-events/", "/api/v1/events/"} {
		a, err := p.call(t.Context(), "GET", line, nil)
		if err != nil {
			t.Fatal(err)
		}
		hidden(line, string(a.body))
	}
	succeed(t, dir, []string{"backup", filepath.Join(dir, "copy.db")})
	hidden("the log", p.said())
	p.end(syscall.SIGTERM)
	filesHide()
	for _, wrong := range [][]string{
		{"rotate-secret", "--secret-file", file("short", "canary")}, {"update", "--headers-file", file("bad", "no header: "+canary)},
		{"rotate-secret", "--secret-file", canary},
	} {
		code, said := finish(t, keyhook(t, dir, "subscriptions", wrong[0], "warehouse", wrong[1], wrong[2]))
		if code != 2 || !strings.Contains(said, wrong[1]) {
			t.Errorf("%v: exit code %d: %s", wrong[:2], code, said)
		}
		hidden(wrong[1], said)
	}
}

// contentsOf returns the contents of the files in a directory, also of large ones.
func contentsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		texts[filepath.Base(path)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}
