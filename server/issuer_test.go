package server_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// unsignedIssuer is an issuer that believes a token without a signature. The tests of package oidc cover the verification.
type unsignedIssuer struct{ asked atomic.Int64 }

func (i *unsignedIssuer) Verify(_ context.Context, token access.Credential) (access.Identity, error) {
	i.asked.Add(1)
	text, _ := base64.RawURLEncoding.DecodeString(token.Reveal()[strings.LastIndex(token.Reveal(), ".")+1:])
	switch string(text) {
	case "down":
		return access.Identity{}, fault.New(fault.Unavailable, "issuer_unavailable", "Later.").Because(errors.New("no route to it"))
	case "forged":
		return access.Identity{}, fault.New(fault.Unauthenticated, "invalid_key", "No.").Because(errors.New("a strange key"))
	}
	subject, rest, _ := strings.Cut(string(text), ",")
	email, organization, _ := strings.Cut(rest, ",")
	return access.Identity{Subject: subject, Email: email, Organization: organization}, nil
}

// foreign returns the Authorization header of a token of the issuer with these claims.
func foreign(says string) string {
	b64 := base64.RawURLEncoding.EncodeToString
	return "Bearer " + b64([]byte(`{"alg":"x"}`)) + "." + b64([]byte("{}")) + "." + b64([]byte(says))
}

func withIssuer(i check.Issuer) func(*server.Options) {
	return func(o *server.Options) { o.Issuer = i }
}

func TestTokensOfAnIssuer(t *testing.T) {
	t.Parallel()
	f := start(t, withIssuer(new(unsignedIssuer)))
	owner, _ := storagetest.Organization(t, f.Store, "acme", "free", access.RoleOwner)
	second, _ := storagetest.Organization(t, f.Store, "second", "growth", access.RoleMember)
	patch := func(p access.Principal, body string) {
		t.Helper()
		f.Do(t, "PATCH /api/v1/users/"+p.User.ID+"/", servertest.Operator, body).Want(t, 200, "")
	}
	patch(owner, `{"external_id":"owner"}`)
	patch(second, `{"external_id":"second"}`)
	patch(storagetest.Operator(t, f.Store), `{"external_id":"root"}`)
	whoami := func(says string, header ...string) servertest.Response {
		t.Helper()
		return f.Do(t, "GET /api/v1/whoami/", foreign(says), "", header...)
	}
	within := func(got servertest.Response, id string) {
		t.Helper()
		if got.Want(t, 200, ""); !strings.Contains(got.Text, `"organization":{"id":"`+id) {
			t.Errorf("not in %s: %s", id, got.Text)
		}
	}

	t.Run("have all permissions of their user's role, and no rate window", func(t *testing.T) {
		got := whoami("owner")
		within(got, owner.Home.ID)
		if !strings.Contains(got.Text, `"id":"`+owner.User.ID) || !strings.Contains(got.Text, access.WebhooksWrite) || !strings.Contains(got.Text, `"key":null`) || got.Header.Get("RateLimit") != "" {
			t.Errorf("%v %s", got.Header, got.Text)
		}
		f.Do(t, "GET /api/v1/plans/", foreign("owner"), "").Want(t, 403, "permission_denied")
	})
	t.Run("act in the organization that they name", func(t *testing.T) {
		within(whoami("owner,,"+owner.Home.ID), owner.Home.ID)
		whoami("owner,,"+second.Home.ID).Want(t, 401, "not_a_member")
		whoami("owner,,"+owner.Home.ID, "X-Organization-Id", second.Home.ID).Want(t, 404, "not_found")
	})
	t.Run("of a member of several organizations act in the one that the header names", func(t *testing.T) {
		path := "/api/v1/organizations/" + owner.Home.ID + "/members/" + second.User.ID + "/"
		f.Do(t, "PUT "+path, servertest.Operator, `{"role":"owner"}`).Want(t, 200, "")
		if got := whoami("second").Want(t, 400, "organization_required"); !strings.Contains(got.Text, "X-Organization-Id") {
			t.Errorf("no mend in %s", got.Text)
		}
		within(whoami("second", "X-Organization-Id", owner.Home.ID), owner.Home.ID)
		within(whoami("second", "X-Organization-Id", second.Home.ID), second.Home.ID)
		within(whoami("second,,"+second.Home.ID), second.Home.ID)
		whoami("second", "X-Organization-Id", storagetest.Operator(t, f.Store).Home.ID).Want(t, 404, "not_found")
		f.Do(t, "DELETE "+path, servertest.Operator, "").Want(t, 204, "")
		within(whoami("second"), second.Home.ID)
		whoami("second", "X-Organization-Id", owner.Home.ID).Want(t, 404, "not_found")
	})
	t.Run("of an operator act in any organization", func(t *testing.T) {
		within(whoami("root", "X-Organization-Id", owner.Home.ID), owner.Home.ID)
		f.Do(t, "PUT /api/v1/users/helper/", servertest.Operator, `{"name":"helper"}`).Want(t, 201, "")
		f.Do(t, "PUT /api/v1/organizations/"+second.Home.ID+"/members/root/", servertest.Operator, `{"role":"member"}`).Want(t, 200, "")
		within(whoami("root", "X-Organization-Id", owner.Home.ID), owner.Home.ID)
		whoami("root", "X-Organization-Id", "nothing").Want(t, 404, "not_found")
		f.Do(t, "PUT /api/v1/organizations/"+second.Home.ID+"/members/helper/", servertest.Operator, `{"role":"operator"}`).Want(t, 200, "")
		f.Do(t, "PUT /api/v1/organizations/"+owner.Home.ID+"/members/helper/", servertest.Operator, `{"role":"member"}`).Want(t, 200, "")
		within(whoami("helper", "X-Organization-Id", storagetest.Operator(t, f.Store).Home.ID), storagetest.Operator(t, f.Store).Home.ID)
	})
	t.Run("are refused for an unknown user, and for the e-mail address of another user", func(t *testing.T) {
		whoami("nobody").Want(t, 401, "unknown_user")
		got := whoami("nobody,"+owner.User.Email).Want(t, 401, "subject_mismatch")
		if strings.Contains(got.Text, "another") || !strings.Contains(f.Log.String(), "another external_id") {
			t.Errorf("the response or the log has too much or too little: %s", got.Text)
		}
	})
	t.Run("are refused from the next request on when their user is deactivated", func(t *testing.T) {
		whoami("owner").Want(t, 200, "")
		patch(owner, `{"is_active":false}`)
		whoami("owner").Want(t, 401, "user_inactive")
		patch(owner, `{"is_active":true}`)
		whoami("owner").Want(t, 200, "")
		f.Do(t, "DELETE /api/v1/organizations/"+owner.Home.ID+"/members/"+owner.User.ID+"/", servertest.Operator, "").Want(t, 204, "")
		whoami("owner").Want(t, 401, "not_a_member")
	})
	t.Run("that the issuer refuses get its message, and the log has the cause", func(t *testing.T) {
		got := whoami("forged").Want(t, 401, "invalid_key")
		if strings.Contains(got.Text, "strange") || !strings.Contains(f.Log.String(), "a strange key") {
			t.Errorf("the response or the log has too much or too little: %s", got.Text)
		}
		if challenge := got.Header.Values("WWW-Authenticate"); len(challenge) != 2 {
			t.Errorf("challenges %q", challenge)
		}
	})
	t.Run("that cannot be verified at the moment get a Retry-After", func(t *testing.T) {
		if got := whoami("down").Want(t, 503, "issuer_unavailable"); got.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	})
	t.Run("count as a credential beside another one", func(t *testing.T) {
		whoami("owner", "Cookie", "keyhook_session=x").Want(t, 400, "multiple_credentials")
	})
	if strings.Contains(f.Log.String(), strings.TrimPrefix(foreign("second"), "Bearer ")) {
		t.Error("the log shows a token")
	}
}

func TestWhatIsATokenOfAnIssuer(t *testing.T) {
	t.Parallel()
	good := strings.TrimPrefix(foreign("nobody"), "Bearer ")
	for name, tt := range map[string]struct {
		value string
		asked int64
	}{
		"three parts":                            {"Bearer " + good, 1},
		"three parts, lower-case scheme":         {"bearer " + good, 1},
		"no signature":                           {"Bearer " + good[:strings.LastIndex(good, ".")+1], 1},
		"a header part that begins with a space": {"Bearer IHsi.e30.AA", 1},
		"two parts":                              {"Bearer " + good[:strings.LastIndex(good, ".")], 0},
		"four parts":                             {"Bearer " + good + ".AA", 0},
		"five parts, encrypted":                  {"Bearer " + good + ".AA.AA", 0},
		"three words with dots":                  {"Bearer operators.chosen.token-of-dots", 0},
		"another alphabet":                       {"Bearer " + good + "+", 0},
		"too many bytes":                         {"Bearer " + good + strings.Repeat("A", 8<<10), 0},
		"the scheme of API keys":                 {"ApiKey " + good, 0},
		"a token of Keyhook":                     {servertest.Bearer(access.Mint("kat")), 0},
		"a key of Keyhook":                       {"Bearer " + access.Mint("svc").Reveal(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := new(unsignedIssuer)
			f := start(t, withIssuer(i))
			got := f.Do(t, "GET /api/v1/whoami/", tt.value, "")
			if got.StatusCode != 401 || i.asked.Load() != tt.asked {
				t.Errorf("status %d, the issuer was asked %d times", got.StatusCode, i.asked.Load())
			}
			none := start(t)
			none.Do(t, "GET /api/v1/whoami/", tt.value, "").Want(t, 401, "")
		})
	}
}

func TestThrottleOfTokensOfAnIssuer(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) *testServer {
		f := build(t, withIssuer(new(unsignedIssuer)))
		f.Do(t, "PATCH /api/v1/users/"+storagetest.Operator(t, f.Store).User.ID+"/", servertest.Operator, `{"external_id":"root"}`).Want(t, 200, "")
		return f
	}
	const peer = "198.51.100.7:1"
	for _, says := range []string{"forged", "nobody"} {
		t.Run("counts as a failure: "+says, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := setup(t)
				for range 20 {
					if status, _ := f.from(peer, foreign(says)); status != 401 {
						t.Fatalf("status %d", status)
					}
				}
				if status, code := f.from(peer, foreign(says)); status != 429 || code != "too_many_failures" {
					t.Errorf("%d %s", status, code)
				}
			})
		})
	}
	t.Run("does not count failures while the issuer is down", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		for range 100 {
			if status, code := f.from(peer, foreign("down")); status != 503 {
				t.Fatalf("%d %s", status, code)
			}
		}
		if status, _ := f.from(peer, foreign("root")); status != 200 {
			t.Errorf("status %d", status)
		}
	})
	t.Run("accepts valid tokens after many failures of others at the same address", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		f.exhaust(t, peer)
		if status, _ := f.from(peer, foreign("root")); status != 200 {
			t.Errorf("status %d", status)
		}
	})
}

// FuzzCredentials sends any Authorization header and any cookie. Neither may be accepted.
func FuzzCredentials(f *testing.F) {
	s := build(f, withIssuer(refuses{}))
	handler := s.Server
	f.Add("Bearer eyJhbGciOiJub25lIn0.e30.", "keyhook_session=x")
	f.Add("", "keyhook_session="+access.MintSession().Reveal())
	f.Add(foreign("root"), "")
	f.Add("", "keyhook_session=; keyhook_session=\"x\"")
	f.Fuzz(func(t *testing.T, authorization, cookie string) {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/whoami/", nil)
		r.Header["Authorization"], r.Header["Cookie"] = []string{authorization}, []string{cookie}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		var p struct{ Code string }
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Code == "" || w.Code != 400 && w.Code != 401 && w.Code != 429 {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
	})
}

// refuses is an issuer that refuses every token.
type refuses struct{}

func (refuses) Verify(context.Context, access.Credential) (access.Identity, error) {
	return access.Identity{}, fault.New(fault.Unauthenticated, "invalid_key", "No.")
}

// TestAFirstTokenOfTheFormOfAJWT is a token that an operator chose, on a server without an issuer.
func TestAFirstTokenOfTheFormOfAJWT(t *testing.T) {
	t.Parallel()
	short := strings.TrimPrefix(foreign("nobody"), "Bearer ")
	c, ok := access.Opaque(short[:min(len(short), 200)])
	if !ok || !access.LooksForeign(c.Reveal()) {
		t.Fatalf("%q is no such token", short)
	}
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	o.Bootstrap = c
	store, _ := storagetest.OpenWith(t, o)
	f := start(t, func(o *server.Options) { o.Store = store })
	f.Do(t, "GET /api/v1/whoami/", servertest.Bearer(c), "").Want(t, 200, "")
	start(t).Do(t, "GET /api/v1/whoami/", "Bearer "+short, "").Want(t, 401, "invalid_key")
}
