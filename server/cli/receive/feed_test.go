package receive_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// program is the program of --forward. It refuses the first request.
type program struct {
	mu     sync.Mutex
	got    []string
	refuse int
}

func (p *program) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var event struct{ ID string }
	_ = json.Unmarshal(body, &event)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, event.ID)
	if p.refuse--; p.refuse >= 0 {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func TestListenFrom(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, secret := storagetest.Subscription(t, f.Store, owner, "", "a")
	p := &program{refuse: 1}
	forward := httptest.NewServer(p)
	defer forward.Close()
	cursor := filepath.Join(t.TempDir(), "cursor")
	args := []string{"--from", f.URL, "--token", token.Reveal(), "--subscription", sub.ID, "--cursor-file", cursor, "--forward", forward.URL, "--secret", secret.Reveal()}

	var want []string
	for i := range 2 {
		first := storagetest.Publish(t, f.Store, owner, "a").ID
		want = append(want, first)
		l := startCommand(t, "Reading the events", args...)
		if i == 0 { // the first one comes again, because the program has refused it
			want = append(want, first)
			l.await(t, "response 200")
		}
		second := storagetest.Publish(t, f.Store, owner, "a").ID
		want = append(want, second)
		l.await(t, second)
		l.stop()
		if out := l.out.String(); strings.Contains(out, "WRONG") || !strings.Contains(out, "webhook-signature is right.") {
			t.Error(out)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := strings.Join(p.got, " "); got != strings.Join(want, " ") {
		t.Errorf("got %s, want %s", got, strings.Join(want, " "))
	}
	if text, err := os.ReadFile(cursor); err != nil || len(text) < 5 {
		t.Errorf("cursor %q, %v", text, err)
	}
}

func TestListenFromWithItsOwnSubscription(t *testing.T) {
	t.Parallel()
	for types, getsAll := range map[string]bool{"a,b.*": false, "*": true, "": true} {
		f := servertest.Start(t)
		owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
		args := []string{"--from", f.URL, "--token", token.Reveal(), "--json"}
		if types != "" {
			args = append(args, "--event-types", types)
		}
		l := startCommand(t, "Reading the events", args...)
		other, id := storagetest.Publish(t, f.Store, owner, "c").ID, storagetest.Publish(t, f.Store, owner, "b.c").ID
		l.await(t, id)
		if code := l.stop(); code != 0 || !strings.Contains(l.out.String(), `"verified":true`) || strings.Contains(l.out.String(), other) != getsAll {
			t.Errorf("%q: exit code %d: %s", types, code, l.out.String())
		}
		if n, err := f.Store.History.LiveSubscriptions(t.Context(), owner.Organization.RowID); n != 0 || err != nil {
			t.Errorf("%d subscriptions are left, %v", n, err)
		}
	}
}

// TestListenFromNow reads a subscription that exists, without a cursor file. For the clock of this machine, the event before is
// of the future, as for a clock that is behind.
func TestListenFromNow(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	f.Do(t, "POST /api/v1/webhooks/subscriptions/", servertest.Bearer(token), `{"url":null,"event_types":["a"],"external_id":"mine"}`).Want(t, 201, "")
	storagetest.Publish(t, f.Store, owner, "a")
	storagetest.Exec(t, f.Store, "UPDATE events SET created_at = created_at + 3600000")
	l := startCommand(t, "Reading the events of subscription mine", "--from", f.URL, "--token", token.Reveal(), "--subscription", "mine")
	l.await(t, storagetest.Publish(t, f.Store, owner, "a").ID)
	l.await(t, storagetest.Publish(t, f.Store, owner, "a").ID)
	if code := l.stop(); code != 0 || strings.Count(l.out.String(), "response 204 after") != 2 {
		t.Errorf("exit code %d: %s%s", code, l.out.String(), l.errs.String())
	}
}

// TestListenFromAPageOfTwo has a program that refuses the second request. So it accepts the first event of a page, and not the second.
func TestListenFromAPageOfTwo(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "", "a")
	var mu sync.Mutex
	var got []string
	forward := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if got = append(got, r.Header.Get("X-Service-Event-Id")); len(got) == 2 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer forward.Close()
	first, second := storagetest.Publish(t, f.Store, owner, "a").ID, storagetest.Publish(t, f.Store, owner, "a").ID
	l := startCommand(t, "Reading the events", "--from", f.URL, "--token", token.Reveal(), "--subscription", sub.ID,
		"--cursor-file", filepath.Join(t.TempDir(), "cursor"), "--forward", forward.URL)
	last := storagetest.Publish(t, f.Store, owner, "a").ID
	l.await(t, last)
	l.stop()
	mu.Lock()
	defer mu.Unlock()
	if d := cmp.Diff([]string{first, second, second, last}, got); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
	}
}

// A cursor file that cannot be written is found before the first event, which the next run would get again.
func TestListenWithACursorFileThatCannotBe(t *testing.T) {
	t.Parallel()
	code, _, stderr := execute(t, []string{"listen", "--from", "http://127.0.0.1:1", "--token", "kat_x", "--subscription", "sub",
		"--cursor-file", filepath.Join(t.TempDir(), "nowhere", "cursor")})
	if code != 1 || !strings.Contains(stderr, "--cursor-file: open ") || strings.Contains(stderr, "127.0.0.1:1") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestListenFromAServerInTrouble has a server whose first responses are no page.
func TestListenFromAServerInTrouble(t *testing.T) {
	t.Parallel()
	const page = `{"data":[{"cursor":"c1","event_id":"evt_1","type":"a","headers":{"X-Service-Event-Id":"evt_1"},"body":"{}"}],"next_cursor":"c1","has_more":false}`
	for name, tt := range map[string]struct {
		status int
		body   string
		says   string // the error; empty: the command tries again
		note   string
	}{
		"too many readers":    {429, `{"code":"too_many_readers"}`, "", "responds with 429"},
		"a restart":           {503, `{"code":"shutting_down"}`, "", "responds with 503"},
		"no response":         {0, "", "", "cannot be reached"},
		"a lost position":     {410, `{"title":"Gone","detail":"Events were deleted.","code":"cursor_expired"}`, "delete the file of --cursor-file to begin with the oldest event", ""},
		"no permission":       {403, `{"title":"Forbidden","detail":"It needs events:read.","code":"permission_denied"}`, "It needs events:read.", ""},
		"a page of a website": {200, `<html>`, "does not come from Keyhook", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				asked = append(asked, r.URL.Query().Get("after"))
				n := len(asked)
				mu.Unlock()
				switch {
				case n == 1 && tt.status == 0:
					panic(http.ErrAbortHandler)
				case n == 1:
					w.Header().Set("Content-Type", "application/problem+json")
					w.WriteHeader(tt.status)
					fmt.Fprint(w, tt.body)
				case n == 2:
					fmt.Fprint(w, page)
				default:
					<-r.Context().Done()
				}
			}))
			defer server.Close()
			cursor := filepath.Join(t.TempDir(), "cursor")
			if err := os.WriteFile(cursor, []byte("c0\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"--from", server.URL, "--token", "kat_x", "--subscription", "sub", "--cursor-file", cursor}
			if tt.says != "" {
				code, _, stderr := execute(t, append([]string{"listen"}, args...))
				if code != 1 || !strings.Contains(stderr, tt.says) {
					t.Errorf("exit code %d: %s", code, stderr)
				}
				return
			}
			l := startCommand(t, "Reading the events", args...)
			l.await(t, tt.note)
			l.await(t, "evt_1")
			if code := l.stop(); code != 0 {
				t.Errorf("exit code %d: %s", code, l.errs.String())
			}
			if text, err := os.ReadFile(cursor); string(text) != "c1\n" || err != nil {
				t.Errorf("the cursor is %q, %v", text, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(asked, " "); !strings.HasPrefix(got, "c0 c0") {
				t.Errorf("asked after %s", got)
			}
		})
	}
}
