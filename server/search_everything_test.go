package server_test

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

type foundThing struct {
	Type, ID         string
	ParentID         *string `json:"parent_id"`
	Title, Detail    string
	OrganizationID   *string `json:"organization_id"`
	OrganizationName *string `json:"organization_name"`
}

func (f *testServer) search(t *testing.T, as, text string) (found []foundThing) {
	t.Helper()
	got := f.Do(t, "GET /api/v1/search/?q="+url.QueryEscape(text), as, "").Want(t, 200, "")
	var body struct{ Data []foundThing }
	if err := json.Unmarshal([]byte(got.Text), &body); err != nil {
		t.Fatal(err)
	}
	return body.Data
}

// things returns "type id" of each thing.
func things(found []foundThing) []string {
	list := []string{}
	for _, f := range found {
		list = append(list, f.Type+" "+f.ID)
	}
	return list
}

// searched is a customer with one thing of each kind.
type searched struct {
	owner                              access.Principal
	token                              string
	organization, user, sub, event     string
	attempt, key, prefix, tokenID, aud string
}

// customer makes an organization with one thing of each kind. Everything has a name or an external id that begins with name.
func (f *testServer) customer(t *testing.T, name string) (c searched) {
	t.Helper()
	owner, token := storagetest.Organization(t, f.Store, name, "growth", access.RoleOwner)
	c.owner, c.token, c.organization, c.user = owner, servertest.Bearer(token), owner.Organization.ID, owner.User.ID
	f.Do(t, "PATCH /api/v1/organizations/"+c.organization+"/", servertest.Operator, `{"external_id":"`+name+`-17"}`).Want(t, 200, "")
	f.Do(t, "PATCH /api/v1/users/"+c.user+"/", servertest.Operator, `{"external_id":"`+name+`-ada"}`).Want(t, 200, "")
	c.sub = f.Do(t, "POST /api/v1/webhooks/subscriptions/", c.token,
		`{"url":"https://`+name+`.example.com/hook?secret=1","external_id":"`+name+`-erp","event_types":["order.paid","user.created"]}`).Want(t, 201, "").Field("id")
	c.event = f.Do(t, "POST /api/v1/events/", c.token, `{"type":"order.paid","data":{},"idempotency_key":"`+name+`-order-1"}`).Want(t, 202, "").Field("id")
	row, err := f.Store.History.SubscriptionRow(t.Context(), owner.Organization.RowID, c.sub)
	if err != nil {
		t.Fatal(err)
	}
	f.Attempted(t, owner, webhook.Subscription{RowID: row, ID: c.sub}, 1)
	c.attempt, _ = f.List(t, c.token, "/api/v1/webhooks/subscriptions/"+c.sub+"/deliveries/").Data[0]["id"].(string)
	key := f.Do(t, "POST /api/v1/api-keys/", c.token, `{"name":"`+name+`-ci","external_id":"`+name+`-gateway","scope":"events:read"}`).Want(t, 201, "")
	c.key, c.prefix = key.Field("id"), key.Field("key_prefix")
	c.tokenID = f.Do(t, "POST /api/v1/users/"+c.user+"/access-tokens/", servertest.Operator, `{"organization_id":"`+c.organization+`","name":"`+name+`-token"}`).Want(t, 201, "").Field("id")
	c.aud, _ = f.List(t, c.token, "/api/v1/audit-events/").Data[0]["id"].(string)
	return c
}

// texts returns everything that finds exactly one thing of the customer, as "type id" by text.
func (c searched) texts(name string) map[string]string {
	whole := map[string]string{
		c.organization: "organization " + c.organization, name + "-17": "organization " + c.organization,
		c.user: "user " + c.user, name + "-ada": "user " + c.user, strings.ToUpper(name) + "-owner@EXAMPLE": "user " + c.user,
		c.tokenID: "access_token " + c.tokenID,
	}
	maps.Copy(whole, c.textsOfCustomer(name))
	delete(whole, name+"-gateway") // of a key; several organizations may use it
	return whole
}

// textsOfCustomer is texts for the customer's own people.
func (c searched) textsOfCustomer(name string) map[string]string {
	return map[string]string{
		c.sub: "subscription " + c.sub, name + "-erp": "subscription " + c.sub, name + ".EXAMPLE": "subscription " + c.sub,
		"https://" + name + ".example.com/ho": "subscription " + c.sub,
		c.event:                               "event " + c.event, name + "-order-1": "event " + c.event,
		c.attempt: "attempt " + c.attempt,
		c.key:     "api_key " + c.key, name + "-gateway": "api_key " + c.key, c.prefix: "api_key " + c.key, strings.TrimSuffix(c.prefix, "…"): "api_key " + c.key,
		strings.ToUpper(name) + "-c": "api_key " + c.key, " \u200f" + c.key + "\u202c\n": "api_key " + c.key,
		c.aud: "audit_event " + c.aud,
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	f := start(t)
	acme, beta := f.customer(t, "acme"), f.customer(t, "beta")

	t.Run("finds each thing by everything that names it", func(t *testing.T) {
		for text, want := range acme.texts("acme") {
			if d := cmp.Diff([]string{want}, things(f.search(t, servertest.Operator, text))); d != "" {
				t.Errorf("%q as operator (-want +got):\n%s", text, d)
			}
		}
		for text, want := range acme.textsOfCustomer("acme") {
			if d := cmp.Diff([]string{want}, things(f.search(t, acme.token, text))); d != "" {
				t.Errorf("%q as the customer (-want +got):\n%s", text, d)
			}
		}
	})
	t.Run("does not find the user of the local socket", func(t *testing.T) {
		principal, err := f.Store.Directory.PrincipalOfSystem(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		system := principal.User
		for _, text := range []string{system.ID, system.Name, system.Email} {
			for _, found := range f.search(t, servertest.Operator, text) {
				if found.Type == "user" {
					t.Errorf("%q finds %+v", text, found)
				}
			}
		}
	})
	t.Run("finds nothing of another organization, and says nothing about it", func(t *testing.T) {
		nothing := f.Do(t, "GET /api/v1/search/?q="+publicid.New(access.KeyID), beta.token, "").Want(t, 200, "")
		texts := acme.texts("acme")
		texts["acme"] = ""
		for text := range texts {
			got := f.Do(t, "GET /api/v1/search/?q="+url.QueryEscape(text), beta.token, "").Want(t, 200, "")
			if got.Text != nothing.Text {
				t.Errorf("%q: %s", text, got.Text)
			}
		}
	})
	t.Run("finds only what the permissions of the caller allow", func(t *testing.T) {
		needs := map[string]string{"subscription": access.WebhooksRead, "attempt": access.WebhooksRead, "event": access.EventsRead, "api_key": access.APIKeysRead, "audit_event": access.AuditRead}
		for _, permission := range []string{access.WebhooksRead, access.EventsRead, access.APIKeysRead, access.AuditRead} {
			key := f.Do(t, "POST /api/v1/api-keys/", acme.token, `{"name":"narrow","scope":"`+permission+`"}`).Want(t, 201, "").Field("key")
			for text, want := range acme.texts("acme") {
				kind, _, _ := strings.Cut(want, " ")
				if got := f.search(t, "ApiKey "+key, text); (len(got) == 1) != (needs[kind] == permission) {
					t.Errorf("%s with %s: %v", kind, permission, things(got))
				}
			}
		}
	})
	t.Run("hides audit events of the event log from those who may not read them", func(t *testing.T) {
		events := f.List(t, acme.token, "/api/v1/events/?type=api_key_created")
		id, _ := events.Data[0]["id"].(string)
		key := f.Do(t, "POST /api/v1/api-keys/", acme.token, `{"name":"reader","scope":"events:read"}`).Want(t, 201, "").Field("key")
		if with, without := f.search(t, acme.token, id), f.search(t, "ApiKey "+key, id); len(with) != 1 || len(without) != 0 {
			t.Errorf("with audit:read %v, without %v", with, without)
		}
	})
	t.Run("says in a line what was found, and never shows a secret", func(t *testing.T) {
		for text, want := range map[string][2]string{
			acme.organization: {"acme", "growth plan"}, acme.user: {"acme-owner", "acme-owner@example.com"},
			acme.sub: {"acme-erp", "acme.example.com, healthy"}, acme.key: {"acme-ci", acme.prefix + ", active"},
			"growth": {"growth", "API keys, webhooks, 600 requests a minute"}, "operat": {"operator", "built-in role"},
		} {
			got := f.search(t, servertest.Operator, text)[0]
			if got.Title != want[0] || got.Detail != want[1] {
				t.Errorf("%s: %q, %q, want %q", text, got.Title, got.Detail, want)
			}
		}
		attempt := f.search(t, acme.token, acme.attempt)[0]
		if attempt.Title != "user.created #1" || !strings.HasPrefix(attempt.Detail, "acme.example.com, succeeded with status 200, 20") || *attempt.ParentID != acme.sub || *attempt.OrganizationName != "acme" {
			t.Errorf("%+v", attempt)
		}
		if token := f.search(t, servertest.Operator, acme.tokenID)[0]; *token.ParentID != acme.user || !strings.Contains(token.Detail, " of acme-owner, active") {
			t.Errorf("%+v", token)
		}
	})
	t.Run("lists whole names first, then beginnings of each kind, by type", func(t *testing.T) {
		for i := range 30 {
			name := "gamma" + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
			f.Do(t, "POST /api/v1/organizations/", servertest.Operator, `{"name":"`+name+`","plan":"free"}`).Want(t, 201, "")
			if i < 3 {
				f.Do(t, "POST /api/v1/users/", servertest.Operator, `{"email":"`+name+`@example.com"}`).Want(t, 201, "")
			}
		}
		gamma := f.Do(t, "POST /api/v1/organizations/", servertest.Operator, `{"name":"Gamma","plan":"free"}`).Want(t, 201, "").Field("id")
		user := f.Do(t, "POST /api/v1/users/", servertest.Operator, `{"email":"someone@example.com","name":"GAMMA"}`).Want(t, 201, "").Field("id")
		got := things(f.search(t, servertest.Operator, "gamma"))
		if len(got) != 20 || got[0] != "organization "+gamma || got[1] != "user "+user || !slices.IsSortedFunc(got[2:], func(a, b string) int { return strings.Compare(a[:5], b[:5]) }) || !strings.HasPrefix(got[17], "user") {
			t.Errorf("%q", got)
		}
	})
}

func TestSearchAfterTheEnd(t *testing.T) {
	t.Parallel()
	f := start(t)
	acme := f.customer(t, "acme")
	f.Do(t, "DELETE /api/v1/api-keys/"+acme.key+"/", acme.token, "").Want(t, 204, "")
	f.Do(t, "DELETE /api/v1/webhooks/subscriptions/"+acme.sub+"/", acme.token, "").Want(t, 204, "")
	check := func(t *testing.T, as, text, want string) {
		t.Helper()
		if got := f.search(t, as, text); len(got) != 1 || !strings.Contains(got[0].Detail, want) {
			t.Errorf("%s: %+v, want %s", text, got, want)
		}
	}
	t.Run("still finds a revoked key and a deleted subscription", func(t *testing.T) {
		check(t, acme.token, acme.prefix, "revoked")
		check(t, acme.token, acme.sub, "deleted")
		check(t, acme.token, "acme.example.com", "deleted")
		check(t, servertest.Operator, "acme.example.com", "deleted")
	})
	t.Run("still finds a closed organization", func(t *testing.T) {
		f.Do(t, "POST /api/v1/organizations/"+acme.organization+"/close/", servertest.Operator, "").Want(t, 202, "")
		check(t, servertest.Operator, acme.organization, "closed")
	})
}

func TestSearchOfAnyText(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.customer(t, "acme")
	for _, text := range []string{
		"", " ", "%", "_", "'", `"`, "\\", "*", "acme%", "_cme", "' OR 1=1 --", "\x00", "acme\x00", "\xff", "acme\xff", "\u202e", "\u200b\u200b",
		strings.Repeat("a", 2000), strings.Repeat("ä", 256), "acme\n", "evt_01h455vb4pex5vsknk084sn02q", "evt_7zzzzzzzzzzzzzzzzzzzzzzzzz",
		"ses_01h455vb4pex5vsknk084sn02q", "svc_AbCdEf…", "svc_AbCdEf…x", "kat_AbCdEf", "https://", "[", "{}",
	} {
		if got := f.search(t, servertest.Operator, text); strings.TrimSpace(text) != "acme" && text != "https://" && len(got) != 0 {
			t.Errorf("%q finds %v", text, things(got))
		}
	}
	f.Do(t, "GET /api/v1/search/", servertest.Operator, "").Want(t, 400, "invalid_parameter")
	f.Do(t, "GET /api/v1/search/?q=a&q=b", servertest.Operator, "").Want(t, 400, "invalid_parameter")
	f.Do(t, "GET /api/v1/search/?q=%zz", servertest.Operator, "").Want(t, 400, "invalid_parameter")
	f.Do(t, "GET /api/v1/search/?query=a", servertest.Operator, "").Want(t, 400, "")
}
