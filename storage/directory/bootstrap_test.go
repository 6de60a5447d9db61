package directory_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// restarts opens one file again and again, like the starts of a server.
type restarts struct {
	options storage.Options
	log     bytes.Buffer
}

func newStarts(t *testing.T) *restarts {
	s := &restarts{options: storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))}
	s.options.Logger = slog.New(slog.NewTextHandler(&s.log, nil))
	return s
}

// start opens the file with a token. A life of 0 means forever. stop ends that start.
func (s *restarts) start(t *testing.T, token access.Credential, life time.Duration) (store *storage.Store, stop func()) {
	t.Helper()
	s.options.Bootstrap, s.options.BootstrapLife = token, life
	return storagetest.OpenWith(t, s.options)
}

// minted starts with a token that a server would print.
func (s *restarts) minted(t *testing.T) (store *storage.Store, token access.Credential, stop func()) {
	t.Helper()
	token = access.Mint(access.TokenPrefix)
	store, stop = s.start(t, token, 24*time.Hour)
	return store, token, stop
}

func TestFirstOperatorsToken(t *testing.T) {
	t.Parallel()
	chosen, _ := access.Opaque("a-token-that-an-operator-chose")

	t.Run("a start replaces unused tokens; the new one is valid for a day and audited", func(t *testing.T) {
		t.Parallel()
		s := newStarts(t)
		var tokens []access.Credential
		for range 3 {
			store, token, stop := s.minted(t)
			if !store.Directory.BootstrapCreated() {
				t.Error("a start without any request before it has made no token")
			}
			tokens = append(tokens, token)
			stop()
		}
		store, newest, _ := s.minted(t)
		for _, token := range tokens {
			_, err := store.Directory.PrincipalByToken(t.Context(), token.Digest())
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "token_revoked")
		}
		p := must[access.Principal](t)(store.Directory.PrincipalByToken(t.Context(), newest.Digest()))
		if p.Token.ExpiresAt == nil || *p.Token.ExpiresAt-p.Token.CreatedAt != (24*time.Hour).Milliseconds() || !p.Can(access.PlatformWrite) {
			t.Errorf("the token is %+v", p.Token)
		}
		var types []string
		for _, e := range must[access.Page[access.AuditEvent]](t)(store.History.AuditPage(t.Context(), p.Home.RowID, access.AuditFilter{Limit: 100})).Rows {
			types = append(types, e.Actor.Type+" "+e.Type)
		}
		created, revoked := "system "+access.AccessTokenCreated, "system "+access.AccessTokenRevoked
		if d := cmp.Diff([]string{created, revoked, created, revoked, created, revoked, created}, types); d != "" {
			t.Errorf("audit log (-want +got):\n%s", d)
		}
	})

	for name, used := range map[string]func(*testing.T, *storage.Store, access.Credential) access.Principal{
		"over the socket": func(t *testing.T, store *storage.Store, _ access.Credential) access.Principal {
			return must[access.Principal](t)(store.Directory.PrincipalOfSystem(t.Context()))
		},
		"by token": func(t *testing.T, store *storage.Store, token access.Credential) access.Principal {
			return must[access.Principal](t)(store.Directory.PrincipalByToken(t.Context(), token.Digest()))
		},
		"by a token of an identity provider": func(t *testing.T, store *storage.Store, token access.Credential) access.Principal {
			operator := must[access.Principal](t)(store.Directory.PrincipalByToken(t.Context(), token.Digest()))
			must[access.User](t)(store.Directory.UpdateUser(t.Context(), operator.Actor("", ""), operator.User.ID, access.UserChange{ExternalID: new("sub")}))
			return must[access.Principal](t)(store.Directory.PrincipalByIdentity(t.Context(), access.Identity{Subject: "sub"}, ""))
		},
	} {
		t.Run("no start creates a token after the first request "+name, func(t *testing.T) {
			t.Parallel()
			s := newStarts(t)
			store, token, stop := s.minted(t)
			store.Directory.Used(used(t, store, token), access.KeyUse{Allowed: 1})
			stop()
			for range 2 {
				store, later, stop := s.minted(t)
				if _, err := store.Directory.PrincipalByToken(t.Context(), later.Digest()); store.Directory.BootstrapCreated() || err == nil {
					t.Error("another token was made")
				}
				if store.Directory.BootstrapRefused() {
					t.Error("a start without the setting says that the token of the setting is refused")
				}
				must[access.Principal](t)(store.Directory.PrincipalByToken(t.Context(), token.Digest()))
				stop()
			}
			store, _ = s.start(t, chosen, 0)
			_, err := store.Directory.PrincipalByToken(t.Context(), chosen.Digest())
			storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
			if store.Directory.BootstrapCreated() || !store.Directory.BootstrapRefused() {
				t.Error("a setting that was made after the first request is not refused")
			}
			if s.log.Len() > 0 {
				t.Errorf("logged %s", s.log.String())
			}
		})
	}

	t.Run("a token that an operator chose lasts and is created once", func(t *testing.T) {
		t.Parallel()
		s := newStarts(t)
		_, _, stop := s.minted(t)
		stop()
		for i := range 3 {
			store, stop := s.start(t, chosen, 0)
			p := must[access.Principal](t)(store.Directory.PrincipalByToken(t.Context(), chosen.Digest()))
			if p.Token.ExpiresAt != nil || store.Directory.BootstrapCreated() != (i == 0) {
				t.Errorf("start %d: bootstrapCreated %v, token %+v", i, store.Directory.BootstrapCreated(), p.Token)
			}
			tokens := must[[]access.AccessToken](t)(store.Directory.Tokens(t.Context(), p.User.ID, 0, 10))
			if len(tokens) != 2 || tokens[0].RevokedAt != nil || tokens[1].RevokedAt == nil {
				t.Errorf("start %d: tokens are %+v", i, tokens)
			}
			stop()
		}
		if s.log.Len() > 0 {
			t.Errorf("logged %s", s.log.String())
		}
	})

	t.Run("a token that an operator chose and revoked stays revoked, and the log says so", func(t *testing.T) {
		t.Parallel()
		s := newStarts(t)
		store, stop := s.start(t, chosen, 0)
		p := must[access.Principal](t)(store.Directory.PrincipalByToken(t.Context(), chosen.Digest()))
		if err := store.Directory.RevokeToken(t.Context(), p.Actor("", ""), p.User.ID, p.Token.ID); err != nil {
			t.Fatal(err)
		}
		stop()
		store, _ = s.start(t, chosen, 0)
		_, err := store.Directory.PrincipalByToken(t.Context(), chosen.Digest())
		storagetest.ExpectFault(t, err, fault.Unauthenticated, "token_revoked")
		if store.Directory.BootstrapCreated() || !store.Directory.BootstrapRefused() {
			t.Errorf("bootstrapCreated %v, logged %q", store.Directory.BootstrapCreated(), s.log.String())
		}
	})
}

// TestFirstOperatorsLink: a start prints a link to the token, which works once, ends with the token and is replaced with it.
func TestFirstOperatorsLink(t *testing.T) {
	t.Parallel()
	s := newStarts(t)
	s.options.BootstrapLink = access.Mint(access.LinkPrefix)
	replaced := s.options.BootstrapLink
	_, _, stop := s.minted(t)
	stop()
	s.options.BootstrapLink = access.Mint(access.LinkPrefix)
	store, token, _ := s.minted(t)
	_, err := store.Directory.PrincipalByLink(t.Context(), replaced.Digest())
	storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
	p := must[access.Principal](t)(store.Directory.PrincipalByLink(t.Context(), s.options.BootstrapLink.Digest()))
	cookie := access.MintSession()
	made := must[access.Session](t)(store.Directory.UseLink(t.Context(), p, p.Actor("", ""), s.options.BootstrapLink, cookie))
	_, err = store.Directory.UseLink(t.Context(), p, p.Actor("", ""), s.options.BootstrapLink, access.MintSession())
	storagetest.ExpectFault(t, err, fault.Unauthenticated, "invalid_key")
	want := must[access.Principal](t)(store.Directory.PrincipalByToken(t.Context(), token.Digest()))
	got := must[access.Principal](t)(store.Directory.PrincipalBySession(t.Context(), cookie.Digest()))
	if made.Kind != access.LinkSession || made.ExpiresAt-made.CreatedAt != (12*time.Hour).Milliseconds() {
		t.Errorf("the session is %+v", made)
	}
	got.Session = nil
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the session acts not as the token (-want +got):\n%s", d)
	}
	if err := store.Directory.RevokeToken(t.Context(), want.Actor("", ""), want.User.ID, want.Token.ID); err != nil {
		t.Fatal(err)
	}
	_, err = store.Directory.PrincipalBySession(t.Context(), cookie.Digest())
	storagetest.ExpectFault(t, err, fault.Unauthenticated, "token_revoked")
}
