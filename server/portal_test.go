package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

const linkStart = "https://keys.example.com/keyhook/console/#link="

// startPortal starts a server that browsers reach at an address of its own, with an organization.
func startPortal(t *testing.T) (f *testServer, owner access.Principal) {
	t.Helper()
	f = start(t, measured, func(o *server.Options) {
		o.ConsoleURL, o.Tester = "https://keys.example.com/keyhook/", ownTester{o.Store}
	})
	owner, _ = storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	return f, owner
}

// ownTester sends nothing. Like the dispatcher, it finds subscriptions of the given organization only.
type ownTester struct{ store server.Store }

func (o ownTester) Test(ctx context.Context, organization int64, subscription, _ string) (webhook.Attempt, error) {
	_, err := o.store.Subscription(ctx, organization, subscription)
	return webhook.Attempt{}, err
}

// portalLink creates a portal link and returns its secret.
func (f *testServer) portalLink(t testing.TB, organization, body string) string {
	t.Helper()
	made := f.Do(t, "POST /api/v1/organizations/"+organization+"/portal-links/", servertest.Operator, body).Want(t, http.StatusCreated, "")
	secret, found := strings.CutPrefix(made.Field("url"), linkStart)
	if !found || made.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("headers %v, body %s", made.Header, made.Text)
	}
	return secret
}

// signInToPortal returns a browser with a portal session.
func (f *testServer) signInToPortal(t testing.TB, organization, body string) browser {
	t.Helper()
	b := newBrowser(t, f.URL)
	b.do(t, "POST "+sessionPath, `{"link":"`+f.portalLink(t, organization, body)+`"}`).Want(t, http.StatusCreated, "")
	return b
}

func TestPortal(t *testing.T) {
	t.Parallel()
	f, owner := startPortal(t)
	home := owner.Home.ID

	t.Run("signs in once, as the service account limited to the role", func(t *testing.T) {
		secret := f.portalLink(t, home, `{"role":"member","expires_in":600,"return_url":"https://shop.example/settings?tab=1"}`)
		b := newBrowser(t, f.URL)
		dry := b.do(t, "POST "+sessionPath, `{"link":"`+secret+`","dry_run":true}`).Want(t, http.StatusOK, "")
		if !strings.Contains(dry.Text, `"organization":{"id":"`+home+`"`) || !strings.Contains(dry.Text, `"kind":"service"`) || len(b.cookies(t)) > 0 {
			t.Errorf("a dry run returns %s and %v", dry.Text, b.cookies(t))
		}
		created := b.do(t, "POST "+sessionPath, `{"link":"`+secret+`"}`).Want(t, http.StatusCreated, "")
		var body struct {
			Kind         string
			Portal       struct{ Role, ReturnURL string }
			User         struct{ Kind string }
			Organization struct{ ID string }
			Permissions  []string
		}
		if err := json.Unmarshal([]byte(strings.Replace(created.Text, "return_url", "ReturnURL", 1)), &body); err != nil {
			t.Fatal(err)
		}
		if body.Kind != "portal" || body.Portal.Role != "member" || body.Portal.ReturnURL != "https://shop.example/settings?tab=1" ||
			body.User.Kind != "service" || body.Organization.ID != home || strings.Contains(strings.Join(body.Permissions, " "), "write") {
			t.Errorf("the session is %s", created.Text)
		}
		if again := b.do(t, "GET "+sessionPath, "").Want(t, 200, ""); again.Text != created.Text {
			t.Errorf("then %s", again.Text)
		}
		newBrowser(t, f.URL).do(t, "POST "+sessionPath, `{"link":"`+secret+`"}`).Want(t, 401, "invalid_link")
		b.do(t, "GET /api/v1/events/", "").Want(t, 200, "")
		b.do(t, "POST /api/v1/api-keys/", `{"name":"n","scope":"events:read"}`).Want(t, 403, "permission_denied")
		b.do(t, "GET /api/v1/whoami/", "", "X-Organization-Id", home).Want(t, 200, "")
		b.do(t, "GET /api/v1/whoami/", "", "X-Organization-Id", storagetest.Operator(t, f.Store).Home.ID).Want(t, 404, "not_found")
		b.do(t, "DELETE "+sessionPath, "").Want(t, 204, "")
		b.do(t, "GET "+sessionPath, "").Want(t, 401, "missing_credential")
		if strings.Contains(f.Log.String(), secret) {
			t.Error("the log shows the secret")
		}
	})
	t.Run("is named in the audit log as what did it", func(t *testing.T) {
		b := f.signInToPortal(t, home, "")
		key := b.do(t, "POST /api/v1/api-keys/", `{"name":"mine","scope":"events:read platform:read"}`).Want(t, 201, "")
		if key.Field("scope") != "events:read" {
			t.Errorf("the key is %s", key.Text)
		}
		log := b.do(t, "GET /api/v1/audit-events/?limit=3", "").Want(t, 200, "").Text
		for _, want := range []string{
			`"type":"api_key_created","actor":{"type":"portal","id":"ses_`, `"name":"Portal (customer)"`, `"type":"session_started","actor":{"type":"portal"`,
			`"type":"portal_link_created","actor":{"type":"user","id":"` + storagetest.Operator(t, f.Store).User.ID, `"link_id":"lnk_`,
		} {
			if !strings.Contains(log, want) {
				t.Errorf("no %s in %s", want, log)
			}
		}
		_, rest, _ := strings.Cut(log, `"actor":{"type":"portal","id":"`)
		of := b.do(t, "GET /api/v1/audit-events/?actor="+rest[:30], "").Want(t, 200, "").Text
		if strings.Count(of, `"actor":`) != 2 || strings.Contains(log+of, "ksl_") {
			t.Errorf("of the session: %s", of)
		}
	})
	t.Run("is started within an hour, or as long as the request says", func(t *testing.T) {
		for body, want := range map[string]time.Duration{"": time.Hour, "{}": time.Hour, `{"expires_in":60}`: time.Minute, `{"expires_in":86400}`: 24 * time.Hour} {
			got := f.Do(t, "POST /api/v1/organizations/"+home+"/portal-links/", servertest.Operator, body).Want(t, 201, "")
			at, err := time.Parse(time.RFC3339, got.Field("expires_at"))
			if left := time.Until(at); err != nil || left > want || left < want-30*time.Second {
				t.Errorf("%s: %s are left, %v", body, left, err)
			}
		}
	})
	t.Run("is found by the external id of the organization, and needs no body", func(t *testing.T) {
		f.Do(t, "PUT /api/v1/organizations/customer-42/", servertest.Operator, `{"name":"C","plan":"growth"}`).Want(t, 201, "")
		got := f.signInToPortal(t, "customer-42", "").do(t, "GET "+sessionPath, "")
		if !strings.Contains(got.Text, `"portal":{"role":"customer","return_url":null}`) {
			t.Errorf("the session is %s", got.Text)
		}
	})
	for name, tt := range map[string]struct {
		body, code, field string
		status            int
	}{
		"a role that does not exist":  {`{"role":"nobody"}`, "validation_failed", "role: unknown_role", 422},
		"a role about the instance":   {`{"role":"operator"}`, "validation_failed", "role: role_not_allowed", 422},
		"too short a life":            {`{"expires_in":59}`, "validation_failed", "expires_in: out_of_range", 422},
		"too long a life":             {`{"expires_in":86401}`, "validation_failed", "expires_in: out_of_range", 422},
		"a script to return to":       {`{"return_url":"javascript:alert(1)"}`, "validation_failed", "return_url: invalid", 422},
		"a path to return to":         {`{"return_url":"/settings"}`, "validation_failed", "return_url: invalid", 422},
		"a password in the return":    {`{"return_url":"https://a:b@shop.example/"}`, "validation_failed", "return_url: invalid", 422},
		"an unknown field":            {`{"user":"x"}`, "validation_failed", "user: unknown_field", 422},
		"no host to return to":        {`{"return_url":"https:///x"}`, "validation_failed", "return_url: invalid", 422},
		"a line break in the return":  {`{"return_url":"https://shop.example/\n"}`, "validation_failed", "", 422},
		"a body that is not an array": {`[]`, "", "", 400},
	} {
		t.Run("is not created with "+name, func(t *testing.T) {
			got := f.Do(t, "POST /api/v1/organizations/"+home+"/portal-links/", servertest.Operator, tt.body).Want(t, tt.status, tt.code)
			if tt.field != "" && strings.Join(got.Fields(), " ") != tt.field {
				t.Errorf("fields %q", got.Fields())
			}
		})
	}
	t.Run("is not started by another site", func(t *testing.T) {
		secret := f.portalLink(t, home, "")
		b := newBrowser(t, f.URL)
		b.do(t, "POST "+sessionPath, `{"link":"`+secret+`"}`, "Sec-Fetch-Site", "cross-site").Want(t, 403, "cross_origin")
		b.do(t, "POST "+sessionPath, `{"link":"`+secret+`"}`).Want(t, 201, "")
	})
}

// TestPortalReachesNothingElse walks the table of routes with the widest portal session.
func TestPortalReachesNothingElse(t *testing.T) {
	t.Parallel()
	f, owner := startPortal(t)
	b := f.signInToPortal(t, owner.Home.ID, `{"role":"owner"}`)
	neighbour, _ := storagetest.Organization(t, f.Store, "neighbour", "growth", access.RoleOwner)
	key, _ := storagetest.Key(t, f.Store, neighbour, access.EventsRead)
	sub, _ := storagetest.Subscription(t, f.Store, neighbour, "https://neighbour.example/hook")
	event := storagetest.Publish(t, f.Store, neighbour, "order.paid")
	foreign := []string{key.ID, sub.ID, event.ID, neighbour.Home.ID, neighbour.User.ID, neighbour.User.Email, "neighbour", "Default", "operator-"}
	ofNeighbour := strings.NewReplacer("{user_id}", neighbour.User.ID, "{token_id}", neighbour.Token.ID, "{attempt_id}",
		"att_01h455vb4pex5vsknk084sn02q", "{name}", "operator", "{key}", "platform:read", "{dialect}", "forward", "{type}", "no.type")
	ids := func(pattern string) string {
		id := neighbour.Home.ID
		switch {
		case strings.Contains(pattern, "/api-keys/"):
			id = key.ID
		case strings.Contains(pattern, "/subscriptions/"):
			id = sub.ID
		case strings.Contains(pattern, "/events/"):
			id = event.ID
		case strings.Contains(pattern, "/users/"):
			id = neighbour.User.ID
		}
		return ofNeighbour.Replace(strings.ReplaceAll(pattern, "{id}", id))
	}
	for _, r := range f.Server.Routes() {
		if r.Open || r.Proxied || line(r) == "DELETE "+sessionPath {
			continue
		}
		t.Run(line(r), func(t *testing.T) {
			body := ""
			if r.Body > 0 {
				body = "{}"
			}
			forbidden := strings.Contains(strings.Join(r.Permissions, " "), "platform:")
			queries := []string{"", "X-Organization-Id"}
			for _, parameter := range r.Parameters {
				if parameter == "organization" {
					queries = append(queries, "?organization=all")
				}
			}
			for _, q := range queries {
				path, header := ids(r.Pattern), []string{"X-Forwarded-For", "192.0.2.1"}
				if q == "X-Organization-Id" {
					header = append(header, q, neighbour.Home.ID)
				} else {
					path += q
				}
				got := b.do(t, r.Method+" "+path, body, header...)
				refused := got.StatusCode == http.StatusForbidden || got.StatusCode == http.StatusNotFound
				if (forbidden || q != "" || strings.Contains(r.Pattern, "{")) && !refused {
					t.Errorf("%s %s: status %d: %s", r.Method, path, got.StatusCode, got.Text)
				}
				for _, text := range foreign {
					if strings.Contains(got.Text, text) && !strings.Contains(path, text) {
						t.Errorf("%s %s shows %s: %s", r.Method, path, text, got.Text)
					}
				}
			}
		})
	}
}

func TestARemovedServiceAccountComesBackWithoutItsSessions(t *testing.T) {
	t.Parallel()
	f, owner := startPortal(t)
	home := owner.Home.ID
	b, unused := f.signInToPortal(t, home, `{}`), f.portalLink(t, home, `{}`)
	var session struct{ User struct{ ID string } }
	if err := json.Unmarshal([]byte(b.do(t, "GET "+sessionPath, "").Want(t, http.StatusOK, "").Text), &session); err != nil {
		t.Fatal(err)
	}
	member := "/api/v1/organizations/" + home + "/members/" + session.User.ID + "/"
	f.Do(t, "DELETE "+member, servertest.Operator, "").Want(t, http.StatusNoContent, "")
	b.do(t, "GET "+sessionPath, "").Want(t, http.StatusUnauthorized, "user_inactive")
	again := f.signInToPortal(t, home, `{}`) // which adds the account again
	again.do(t, "GET "+sessionPath, "").Want(t, http.StatusOK, "")
	newBrowser(t, f.URL).do(t, "POST "+sessionPath, `{"link":"`+unused+`"}`).Want(t, http.StatusUnauthorized, "")

	f.Do(t, "DELETE "+member, servertest.Operator, "").Want(t, http.StatusNoContent, "")
	f.Do(t, "PUT "+member, servertest.Operator, `{"role":"owner"}`).Want(t, http.StatusOK, "")
	again.do(t, "GET "+sessionPath, "").Want(t, http.StatusUnauthorized, "")
}

// TestALinkEndsNoOtherSession opens a link in a browser that has the session of somebody else.
func TestALinkEndsNoOtherSession(t *testing.T) {
	t.Parallel()
	f, owner := startPortal(t)
	other, token := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	open := func(b browser, secret, more string) servertest.Response {
		return b.do(t, "POST "+sessionPath, `{"link":"`+secret+`"`+more+`}`)
	}
	isIn := func(b browser, organization string) {
		t.Helper()
		if got := b.do(t, "GET "+sessionPath, "").Want(t, 200, ""); !strings.Contains(got.Text, `"organization":{"id":"`+organization) {
			t.Errorf("not in %s: %s", organization, got.Text)
		}
	}
	t.Run("unless the person agrees", func(t *testing.T) {
		for name, b := range map[string]browser{"a portal": f.signInToPortal(t, other.Home.ID, `{}`), "a token": newBrowser(t, f.URL)} {
			if name == "a token" {
				b.signIn(t, token.Reveal())
			}
			secret := f.portalLink(t, owner.Home.ID, `{}`)
			if got := open(b, secret, "").Want(t, 409, "signed_in_as_other"); got.Header.Get("Set-Cookie") != "" {
				t.Errorf("the response sets a cookie: %v", got.Header)
			}
			isIn(b, other.Home.ID)
			open(b, secret, `,"dry_run":true`).Want(t, 200, "")
			isIn(b, other.Home.ID)
			cookie := []string{"Cookie", "keyhook_session=" + b.cookies(t)[0].Value}
			open(b, secret, `,"replace":true`).Want(t, 201, "")
			isIn(b, owner.Home.ID)
			f.Do(t, "GET "+sessionPath, "", "", cookie...).Want(t, 401, "invalid_session")
		}
	})
	t.Run("nor that of the same user in another organization", func(t *testing.T) {
		o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
		o.Bootstrap, o.BootstrapLife, o.BootstrapLink = access.Mint(access.TokenPrefix), time.Hour, access.Mint(access.LinkPrefix)
		store, _ := storagetest.OpenWith(t, o)
		first := storagetest.Must[access.Principal](t)(store.Directory.PrincipalByToken(t.Context(), o.Bootstrap.Digest()))
		acme := storagetest.Must[access.Organization](t)(store.Directory.CreateOrganization(t.Context(), first.Actor("", ""), access.Organization{Name: "acme", Plan: "growth"}))
		storagetest.Must[access.Member](t)(store.Directory.SetMember(t.Context(), first.Actor("", ""), acme.ID, first.User.ID, access.RoleOwner))
		elsewhere := access.Mint(access.TokenPrefix)
		storagetest.Must[access.AccessToken](t)(store.Directory.CreateToken(t.Context(), first.Actor("", ""), first.User.ID, acme.ID, elsewhere, "", nil))
		on := servertest.BuildOn(t, store)
		signedIn := on.Do(t, "POST "+sessionPath, "", `{"token":"`+elsewhere.Reveal()+`"}`).Want(t, 201, "")
		cookie := []string{"Cookie", strings.Split(signedIn.Header.Get("Set-Cookie"), ";")[0]}
		on.Do(t, "POST "+sessionPath, "", `{"link":"`+o.BootstrapLink.Reveal()+`"}`, cookie...).Want(t, 409, "signed_in_as_other")
		on.Do(t, "POST "+sessionPath, "", `{"link":"`+o.BootstrapLink.Reveal()+`","replace":true}`, cookie...).Want(t, 201, "")
	})
	t.Run("but the same customer is not asked, with any role", func(t *testing.T) {
		b := f.signInToPortal(t, owner.Home.ID, `{"role":"owner"}`)
		open(b, f.portalLink(t, owner.Home.ID, `{"role":"member"}`), "").Want(t, 201, "")
	})
	t.Run("but a session that has ended is nobody's", func(t *testing.T) {
		b := f.signInToPortal(t, other.Home.ID, `{}`)
		cookie := []string{"Cookie", "keyhook_session=" + b.cookies(t)[0].Value}
		b.do(t, "DELETE "+sessionPath, "").Want(t, 204, "")
		f.Do(t, "POST "+sessionPath, "", `{"link":"`+f.portalLink(t, owner.Home.ID, `{}`)+`"}`, cookie...).Want(t, 201, "")
	})
}
