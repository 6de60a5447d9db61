package directory_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// beginSession begins the session of a new user with a role in a new organization.
func beginSession(t *testing.T, x platform, role string) (p access.Principal, d access.Digest) {
	t.Helper()
	owner, token := storagetest.Organization(t, x.Store, "acme", "growth", role)
	p = must[access.Principal](t)(x.Directory.PrincipalByToken(t.Context(), token.Digest()))
	c := access.MintSession()
	must[access.Session](t)(x.Directory.CreateSession(t.Context(), p, owner.Actor("192.0.2.1", "req"), c))
	return p, c.Digest()
}

func TestSessions(t *testing.T) {
	t.Parallel()
	t.Run("act as their access token", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		want, d := beginSession(t, x, access.RoleMember)
		for _, when := range []string{"read", "cached"} {
			got := must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), d))
			if got.Session == nil || got.Session.ExpiresAt-got.Session.CreatedAt != (12*time.Hour).Milliseconds() {
				t.Fatalf("%s: %+v", when, got.Session)
			}
			got.Session = nil
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
	})
	t.Run("are no tokens, and tokens no sessions", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		_, d := beginSession(t, x, access.RoleMember)
		token, _ := access.Opaque(storagetest.OperatorToken)
		for range 2 {
			_, err := x.Directory.PrincipalByToken(t.Context(), d)
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
			_, err = x.Directory.PrincipalBySession(t.Context(), token.Digest())
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
			must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), d))
		}
	})
	t.Run("end once, and tell the audit log", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		_, d := beginSession(t, x, access.RoleMember)
		p := must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), d))
		for range 2 {
			if err := x.Directory.EndSession(t.Context(), p, p.Actor("", "")); err != nil {
				t.Fatal(err)
			}
			_, err := x.Directory.PrincipalBySession(t.Context(), d)
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
		}
		about := map[string]any{"kind": "token", "user_id": p.User.ID, "access_token_id": p.Token.ID}
		until := map[string]any{"kind": "token", "user_id": p.User.ID, "access_token_id": p.Token.ID, "expires_at": time.UnixMilli(p.Session.ExpiresAt).UTC().Format("2006-01-02T15:04:05.000Z")}
		x.expectLog(t, p.Home.RowID, told{access.SessionEnded, "session " + p.Session.ID, about}, told{access.SessionStarted, "session " + p.Session.ID, until})
	})
	for name, tt := range map[string]struct {
		end  func(t *testing.T, x platform, p access.Principal) error
		code string
	}{
		"their token is revoked": {func(t *testing.T, x platform, p access.Principal) error {
			return x.Directory.RevokeToken(t.Context(), x.By, p.User.ID, p.Token.ID)
		}, "token_revoked"},
		"their user is dismissed": {func(t *testing.T, x platform, p access.Principal) error {
			_, err := x.Directory.UpdateUser(t.Context(), x.By, p.User.ID, access.UserChange{IsActive: new(false)})
			return err
		}, "user_inactive"},
		"their user leaves the organization": {func(t *testing.T, x platform, p access.Principal) error {
			return x.Directory.RemoveMember(t.Context(), x.By, p.Home.ID, p.User.ID)
		}, "user_inactive"},
	} {
		t.Run("are refused at once when "+name, func(t *testing.T) {
			t.Parallel()
			x := newPlatform(t)
			p, d := beginSession(t, x, access.RoleMember)
			must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), d))
			if err := tt.end(t, x, p); err != nil {
				t.Fatal(err)
			}
			_, err := x.Directory.PrincipalBySession(t.Context(), d)
			storagetest.ExpectFault(t, err, fault.Unauthenticated, tt.code)
		})
	}
}

func TestSessionsEnd(t *testing.T) {
	t.Parallel()

	t.Run("follow a change of the role at once", func(t *testing.T) {
		t.Parallel()
		x := newPlatform(t)
		p, d := beginSession(t, x, access.RoleOwner)
		if got := must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), d)); !got.Can(access.APIKeysWrite) {
			t.Fatal("an owner may not write keys")
		}
		must[access.Member](t)(x.Directory.SetMember(t.Context(), x.By, p.Home.ID, p.User.ID, access.RoleMember))
		if got := must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), d)); got.Can(access.APIKeysWrite) {
			t.Error("a member may write keys")
		}
	})
	t.Run("end after twelve hours, cached or not, and are forgotten", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newPlatform(t)
			_, d := beginSession(t, x, access.RoleMember)
			time.Sleep(12*time.Hour - time.Second)
			must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), d))
			if n := must[int](t)(x.Directory.Sessions(t.Context())); n != 1 {
				t.Errorf("%d sessions are kept", n)
			}
			time.Sleep(time.Second)
			for range 2 {
				_, err := x.Directory.PrincipalBySession(t.Context(), d)
				storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
				if err := x.Directory.ForgetPrincipals(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * time.Second)
			if n := must[int](t)(x.Directory.Sessions(t.Context())); n != 0 {
				t.Errorf("%d sessions are kept", n)
			}
		})
	})
	t.Run("end no later than their token expires", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newPlatform(t)
			owner, _ := storagetest.Organization(t, x.Store, "acme", "growth", access.RoleOwner)
			const life = time.Hour + 500*time.Millisecond // ends between two rounds of upkeep, which forgets what has ended
			expires := time.Now().Add(life).UnixMilli()
			c := access.Mint(access.TokenPrefix)
			must[access.AccessToken](t)(x.Directory.CreateToken(t.Context(), x.By, owner.User.ID, owner.Home.ID, c, "", &expires))
			p := must[access.Principal](t)(x.Directory.PrincipalByToken(t.Context(), c.Digest()))
			session := access.MintSession()
			if made := must[access.Session](t)(x.Directory.CreateSession(t.Context(), p, x.By, session)); made.ExpiresAt != expires {
				t.Errorf("ends at %d, want %d", made.ExpiresAt, expires)
			}
			must[access.Principal](t)(x.Directory.PrincipalBySession(t.Context(), session.Digest())) // it is in the cache
			time.Sleep(life)
			_, err := x.Directory.PrincipalBySession(t.Context(), session.Digest())
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "token_expired")
		})
	})
	t.Run("outlive the process", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		p := storagetest.Operator(t, store)
		c := access.MintSession()
		must[access.Session](t)(store.Directory.CreateSession(t.Context(), p, p.Actor("", ""), c))
		stop()
		again, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
		must[access.Principal](t)(again.Directory.PrincipalBySession(t.Context(), c.Digest()))
	})
}

// TestSessionFromTheFuture has a session begin while the clock is ahead: it does not last until that time comes.
// TestAllExpiredSessionsAreDropped has more of them than one transaction deletes.
func TestAllExpiredSessionsAreDropped(t *testing.T) {
	t.Parallel()
	x := newPlatform(t)
	beginSession(t, x, access.RoleOwner)
	var end int64
	storagetest.Query(t, x.Path(), &end, "SELECT expires_at FROM sessions")
	storagetest.Exec(t, x.Store, `
		WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)
		INSERT INTO sessions (public_id, kind, user_id, organization_id, may_switch, token_id, digest, created_at, expires_at)
		SELECT 'ses_' || i, kind, user_id, organization_id, 0, token_id, randomblob(32), created_at, expires_at FROM sessions, n`)
	left := func(now int64) (n int) {
		if err := x.Directory.DropSessions(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		storagetest.Query(t, x.Path(), &n, "SELECT count(*) FROM sessions")
		return n
	}
	if before, after := left(end-1), left(end); before != 1201 || after != 0 {
		t.Errorf("%d sessions a millisecond before their end, and %d at their end", before, after)
	}
}

func TestSessionFromTheFuture(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
		defer stop()
		operator := storagetest.Operator(t, store)
		credential := access.MintSession()
		if _, err := store.Directory.CreateSession(t.Context(), operator, operator.Actor("", ""), credential); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Directory.PrincipalBySession(t.Context(), credential.Digest()); err != nil {
			t.Error(err)
		}
		if err := store.Directory.MoveSessions(t.Context(), 400*24*time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Directory.PrincipalBySession(t.Context(), credential.Digest()); fault.KindOf(err) != fault.Unauthenticated {
			t.Errorf("a session of 400 days: %v", err)
		}
	})
}
