package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

const leakedPath = "POST /api/v1/auth/leaked/"

// report reports a text as a leaked credential, from a peer.
func (f *testServer) report(t *testing.T, peer, raw string) servertest.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/api/v1/auth/leaked/", strings.NewReader(fmt.Sprintf(`{"key":%q}`, raw)))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = peer
	response := f.Handle(r)
	a := servertest.Response{Response: response, Text: servertest.Read(t, response)}
	servertest.CheckResponse(t, leakedPath, a)
	return a
}

// slowLeaks is a store on a slow disk.
type slowLeaks struct{ server.Store }

func (s slowLeaks) RevokeLeaked(ctx context.Context, digest access.Digest, ip, requestID string) error {
	time.Sleep(300 * time.Millisecond)
	return s.Store.RevokeLeaked(ctx, digest, ip, requestID)
}

// TestLeakedCredentials has two organizations. The credentials of the other one, and the other credentials of the same one, stay.
func TestLeakedCredentials(t *testing.T) {
	t.Parallel()
	const peer = "198.51.100.7:1000"

	t.Run("are refused from the next request on, and the audit log says why", func(t *testing.T) {
		t.Parallel()
		f := build(t)
		owner, token := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
		other, otherToken := storagetest.Organization(t, f.Store, "other", "enterprise", access.RoleOwner)
		leaked, key := storagetest.Key(t, f.Store, owner, access.EventsRead)
		_, kept := storagetest.Key(t, f.Store, owner, access.EventsRead)
		_, otherKey := storagetest.Key(t, f.Store, other, access.EventsRead)
		for range 2 {
			f.report(t, peer, " "+key.Reveal()+"\n").Want(t, http.StatusNoContent, "")
			f.report(t, peer, token.Reveal()).Want(t, http.StatusNoContent, "")
		}
		for as, want := range map[string]string{
			servertest.APIKey(key): "key_revoked", servertest.Bearer(token): "token_revoked",
			servertest.APIKey(kept): "", servertest.APIKey(otherKey): "", servertest.Bearer(otherToken): "",
		} {
			if _, code := f.from("127.0.0.1:1", as); code != want {
				t.Errorf("%.8s: code %q, want %q", as, code, want)
			}
		}
		page, err := f.Store.History.AuditPage(t.Context(), owner.Home.RowID, access.AuditFilter{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, e := range page.Rows {
			if strings.HasSuffix(e.Type, "_revoked") {
				told = append(told, strings.Join([]string{e.Type, e.Actor.Type, e.IP, e.TargetID, e.Details}, " "))
				if e.RequestID == "" {
					t.Errorf("%s does not name the request", e.Type)
				}
			}
		}
		want := []string{
			`access_token_revoked system 198.51.100.7 ` + owner.Token.ID + ` {"name":"` + owner.Token.Name + `","reason":"leaked","user_id":"` + owner.User.ID + `"}`,
			`api_key_revoked system 198.51.100.7 ` + leaked.ID + ` {"name":"` + leaked.Name + `","reason":"leaked"}`,
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("audit log (-want +got):\n%s", diff)
		}
	})

	t.Run("get the same response in the same time as texts that are none", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := build(t)
			owner, token := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
			_, key := storagetest.Key(t, f.Store, owner, access.EventsRead)
			want := http.Header{}
			for i, raw := range []string{
				"", "x", "svc_x", strings.Repeat("x", 513), strings.Repeat("x", 64<<10-len(`{"key":""}`)), access.Mint("svc").Reveal(), access.Mint("kat").Reveal(), access.Mint(access.LinkPrefix).Reveal(),
				owner.Token.ID, key.Reveal(), token.Reveal(), key.Reveal(), "bootstrap token with spaces", "not-ÄSCII-not-ÄSCII-not-ÄSCII",
			} {
				began := time.Now()
				got := f.report(t, fmt.Sprintf("198.51.100.%d:1", i), raw).Want(t, http.StatusNoContent, "")
				if took := time.Since(began); took != 250*time.Millisecond || got.Text != "" {
					t.Errorf("%.8q took %s: %s", raw, took, got.Text)
				}
				got.Header.Del("X-Request-Id")
				if i == 0 {
					want = got.Header
				}
				if diff := cmp.Diff(want, got.Header); diff != "" {
					t.Errorf("%.8q (-first +this):\n%s", raw, diff)
				}
			}
		})
	})

	t.Run("can be reported by an address as often as it may fail, whether they exist or not", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := build(t)
			owner, _ := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
			made := func() string { _, key := storagetest.Key(t, f.Store, owner, access.EventsRead); return key.Reveal() }
			exhaust := func(from string, raw func() string) (reports int) {
				for reports < 100 && f.report(t, from, raw()).StatusCode == http.StatusNoContent {
					reports++
				}
				return reports
			}
			if known, unknown := exhaust("198.51.100.2:1", made), exhaust("198.51.100.1:1", func() string { return "x" }); known != unknown || known < 20 || known > 30 {
				t.Errorf("%d reports of keys, and %d of others", known, unknown)
			}
			_, key := storagetest.Key(t, f.Store, owner, access.EventsRead)
			if refused := f.report(t, "198.51.100.1:1", key.Reveal()).Want(t, http.StatusTooManyRequests, "too_many_failures"); refused.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			if status, code := f.from("198.51.100.1:1", servertest.APIKey(key)); status != http.StatusOK {
				t.Errorf("the refused report revoked the key: %d %s", status, code)
			}
			f.report(t, "198.51.100.3:1", key.Reveal()).Want(t, http.StatusNoContent, "")
		})
	})

	t.Run("that cannot be revoked are not said to be", func(t *testing.T) {
		t.Parallel()
		f := build(t)
		owner, token := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
		_, key := storagetest.Key(t, f.Store, owner, access.EventsRead)
		storagetest.Refuse(t, f.Store, "UPDATE OF revoked_at ON api_keys", "1")
		f.report(t, peer, key.Reveal()).Want(t, http.StatusInternalServerError, "internal_error")
		f.report(t, peer, token.Reveal()).Want(t, http.StatusNoContent, "")
	})

	t.Run("need a key in the body", func(t *testing.T) {
		t.Parallel()
		f := build(t)
		got := f.Do(t, leakedPath, "", `{"token":"x"}`).Want(t, http.StatusUnprocessableEntity, "validation_failed")
		if diff := cmp.Diff([]string{"key: missing", "token: unknown_field"}, got.Fields()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestALeakOnASlowDisk takes a multiple of the time, so that the time does not tell whether something was revoked.
func TestALeakOnASlowDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t, func(o *server.Options) { o.Store = slowLeaks{o.Store} })
		owner, _ := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
		_, key := storagetest.Key(t, f.Store, owner, access.EventsRead)
		began := time.Now()
		f.report(t, "198.51.100.7:1000", key.Reveal()).Want(t, http.StatusNoContent, "")
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})
}
