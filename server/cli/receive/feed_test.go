package receive_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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
		if out := l.out.String(); !strings.Contains(out, "Wrong signatures: 0. Signatures not verified: 0.") {
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
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	l := startCommand(t, "Reading the events", "--from", f.URL, "--token", token.Reveal(), "--event-types", "a,b.*", "--json")
	id := storagetest.Publish(t, f.Store, owner, "b.c").ID
	l.await(t, id)
	if code := l.stop(); code != 0 || !strings.Contains(l.out.String(), `"verified":true`) {
		t.Errorf("exit code %d: %s", code, l.out.String())
	}
	if n, err := f.Store.History.LiveSubscriptions(t.Context(), owner.Organization.RowID); n != 0 || err != nil {
		t.Errorf("%d subscriptions are left, %v", n, err)
	}
}
