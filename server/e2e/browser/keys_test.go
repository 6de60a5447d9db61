package browser

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestNewAPIKey creates keys: what is granted, what the form refuses, and that the raw key is shown once.
func TestNewAPIKey(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.customer(t, "Acme")
	s.must(t, "PATCH", "/api/v1/organizations/"+c.id+"/", object{"plan": "growth"}, nil)
	p := open(t, s.base)
	p.signIn(c.token)
	p.visit("/console/keys/")
	p.expect("0 of 50 active")
	p.expect("No active API key")
	p.in("region", "The same with curl").expect("/api/v1/api-keys/")
	evaluate[any](p, `document.querySelector(".empty a").click()`) // the head has such a link too
	p.expectPath("/console/keys/new/")

	t.Run("each wrong field has its error, and nothing is sent", func(t *testing.T) {
		p.click("button", "Add a value")
		p.fill("Value 1", strings.Repeat("x", 2100))
		p.choose("Expires", "At a time…")
		p.fill("Expires at", "2001-01-01T12:00")
		p.click("button", "Create API key")
		for _, text := range []string{"Give the key a name.", "Choose at least one permission.", "Choose a time in the future.", "Each value needs a name."} {
			p.expect(text)
		}
		p.fill("Name 1", "team")
		p.click("button", "Create API key")
		p.expect("At most 2,048 are allowed.")
		p.gone("of 2,048 bytes") // the hint, which says the same
		p.gone("Requests are refused from")
		p.look("key-new-errors")
		p.fill("Value 1", "orders")
		p.choose("Expires", "In 90 days")
		p.expect("Requests are refused from")
	})
	t.Run("the preview says what is granted of a pasted list", func(t *testing.T) {
		p.fill("Name", "Back end")
		p.click("button", "Paste a list")
		p.fill("Permissions to add", `["events:read", "events:write"] platform:read Order`)
		p.click("button", "Add 4 permissions")
		p.fill("Search permissions", "webh")
		p.goneElement("checkbox", "audit:read")
		p.click("checkbox", "All of webhooks")
		p.fill("Search permissions", "")
		preview := p.in("region", "Preview")
		preview.expect("events:write webhooks:read webhooks:write Not granted Order This is not the name of a permission. platform:read You do not have it")
		p.click("checkbox", "webhooks:write")
		preview.gone("webhooks:write")
		preview.click("button", "Remove Order")
		preview.gone("Order")
	})
	t.Run("a network that cannot be has its error", func(t *testing.T) {
		p.allow(http.StatusUnprocessableEntity, "/api/v1/api-keys/")
		p.fill("Networks", "127.0.0.0/8, 10.1.2.3/8")
		p.click("button", "Create API key")
		p.expect(`has address bits beyond its prefix length; write "10.0.0.0/8" or "10.1.2.3".`)
		p.look("key-new-network")
		p.fill("Networks", "127.0.0.0/8 ::1")
	})
	var raw string
	t.Run("the raw key is shown once, and works", func(t *testing.T) {
		evaluate[any](p, `(button => { button.click(); button.click() })(document.querySelector("form button[type=submit]"))`)
		p.expect("Copy the key now")
		p.look("key-created")
		p.click("button", "Copy")
		raw = p.copied()
		key := client{base: s.base, authorization: "ApiKey " + raw}
		if got := key.read(t, "/api/v1/whoami/", "permissions"); got != "[events:read events:write webhooks:read]" {
			t.Errorf("the key holds %s", got)
		}
		p.in("region", "curl with the key").expect("ApiKey " + raw)
		p.in("navigation", "You are here").click("link", "API keys")
		p.expect("Save it first")
		p.click("button", "I have saved it")
		p.expectElement("heading", "Back end")
		p.expect("127.0.0.0/8, ::1/128")
		p.gone(raw)
		p.back()
		p.expectElement("link", "Back end")
		p.reload()
		p.gone(raw)
	})
	t.Run("a double click has made one key, with all that the form said", func(t *testing.T) {
		var list struct {
			Data []struct {
				Name      string
				Metadata  object
				ExpiresAt time.Time `json:"expires_at"`
			}
		}
		c.must(t, "GET", "/api/v1/api-keys/", nil, &list)
		if len(list.Data) != 1 || list.Data[0].Name != "Back end" || list.Data[0].Metadata["team"] != "orders" {
			t.Fatalf("keys: %+v", list.Data)
		}
		if days := time.Until(list.Data[0].ExpiresAt).Hours() / 24; days < 89 || days > 90 {
			t.Errorf("it expires in %f days", days)
		}
		p.expect("1 of 50 active")
	})
	t.Run("a raw key in the filter becomes its prefix", func(t *testing.T) {
		p.fill("Prefix", raw)
		p.press("Enter")
		p.expectPath("/console/keys/?prefix=" + raw[:10])
		p.expectElement("link", "Back end")
		p.choose("Status", "Revoked")
		p.expect("No key has this prefix")
		evaluate[any](p, `document.querySelector(".empty a").click()`) // the filters have such a link too
		p.expectPath("/console/keys/")
	})
	t.Run("a raw key in the search becomes its prefix, too", func(t *testing.T) {
		p.fill("Search", "Authorization: ApiKey "+raw)
		p.expectElement("option", "Back end")
		p.fill("Search", raw[:38])
		p.expectElement("option", "Back end")
		if asked := evaluate[[]string](p, `performance.getEntriesByType("resource").map(e => e.name)`); strings.Contains(strings.Join(asked, "\n"), raw[:12]) {
			t.Errorf("requests have the key: %q", asked)
		}
	})
}

// TestAPIKeyOfAnotherOrganization: an operator's key in another organization belongs to its service account, or to a member.
func TestAPIKeyOfAnotherOrganization(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.customer(t, "Acme")
	s.create(t, "/api/v1/permissions/", object{"key": "orders:refund", "description": "Pay money back", "internal": true})
	p := open(t, s.base)
	p.signIn(operatorToken)
	p.visit("/console/keys/new/?name=Default&scope=events:write+orders:refund+nothing:read&org=" + c.id)
	preview := p.in("region", "Preview")
	preview.expect("nothing:read There is no such permission. orders:refund The role of the service account does not have it. It acts as the service account in Acme")
	p.choose("Belongs to", "Owner of Acme (owner)")
	preview.expect("It acts as Owner of Acme")
	p.choose("Belongs to", "Service account of Acme")
	p.click("button", "Create API key")
	p.expect("Service account")
	p.click("button", "I have saved it")
	p.expect("Created by Service account")
	var list struct {
		Data []struct{ Creator struct{ Kind string } }
	}
	c.must(t, "GET", "/api/v1/api-keys/", nil, &list)
	if len(list.Data) != 1 || list.Data[0].Creator.Kind != "service" {
		t.Errorf("keys: %+v", list.Data)
	}
}

// TestAPIKeyLife rotates and revokes keys, and explains requests with them.
func TestAPIKeyLife(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.customer(t, "Acme")
	id, raw := c.newKey(t, "Back end", "events:write")
	old := client{base: s.base, authorization: "ApiKey " + raw}
	p := open(t, s.base)
	p.signIn(c.token)
	p.visit("/console/keys/")
	p.click("link", "Back end")
	p.expectPath("/console/keys/" + id + "/")
	p.expect("No request in the last 30 days.")

	t.Run("explain says which check fails, and has the mend", func(t *testing.T) {
		p.click("DisclosureTriangle", "Explain a request…")
		p.fill("Path", "/api/v1/events/")
		p.click("button", "Explain")
		p.expect("Refused: 403 permission_denied")
		p.expect("does not include events:read")
		p.expectPath("/console/keys/" + id + "/?method=GET&path=%2Fapi%2Fv1%2Fevents%2F")
		p.reload()
		p.expect("Refused: 403 permission_denied")
		p.look("key-explained")
		p.choose("Method", "POST")
		p.click("button", "Explain")
		p.expect("Allowed")
		p.choose("Method", "GET")
		p.press("Tab")
		p.press("Enter")
		p.click("link", "Create a key that may do this")
		p.in("region", "Preview").expect("events:read events:write")
		p.visit("/console/keys/explain/")
		p.click("button", "Explain")
		p.expect("Paste a key, its prefix or its id.")
		p.fill("API key", raw)
		p.fill("Permission", "events:write")
		p.press("Enter")
		p.expect("Allowed")
		p.expectPath("/console/keys/explain/")
		p.fill("API key", raw[:39])
		p.press("Enter")
		p.expect("Refused: 401 invalid_key")
	})
	t.Run("a rotation with a grace leaves both keys", func(t *testing.T) {
		p.visit("/console/keys/" + id + "/")
		p.click("button", "Rotate key…")
		dialog := p.in("dialog", "Rotate this key?")
		dialog.expect("The key was never used.")
		p.look("key-rotate")
		dialog.choose("The old key ends", "In 1 hour")
		dialog.click("button", "Rotate key")
		p.expect("works until")
		p.click("button", "Copy")
		for _, key := range []client{old, {base: s.base, authorization: "ApiKey " + p.copied()}} {
			key.must(t, "GET", "/api/v1/whoami/", nil, nil)
		}
		p.click("button", "I have saved it")
		p.expect("Replaces " + id)
		p.click("link", id)
		p.expect("A new key replaces this one")
		p.expect("Rotated, with a grace of 1 h")
		p.goneElement("button", "Rotate key…")
		p.click("link", "Open the new key")
		p.expect("Replaces " + id)
	})
	t.Run("a rotation at once ends the old key", func(t *testing.T) {
		p.click("button", "Rotate key…")
		p.choose("The old key ends", "At once")
		p.click("button", "Rotate key")
		p.expect("does not work any more")
		p.click("button", "I have saved it")
	})
	t.Run("its requests are shown by day", func(t *testing.T) {
		old.call(t, "GET", "/api/v1/audit-events/", nil) // it may not
		for end := time.Now().Add(time.Minute); c.read(t, "/api/v1/usage/keys/?key_id="+id, "data") == "[]" && time.Now().Before(end); {
			time.Sleep(200 * time.Millisecond)
		}
		p.visit("/console/keys/" + id + "/")
		p.in("table", "Usage by day").expect(time.Now().UTC().Format(time.DateOnly))
		p.look("key-used")
	})
	t.Run("a revocation is typed, and final", func(t *testing.T) {
		p.click("button", "Revoke key…")
		dialog := p.in("dialog", "Revoke this key?")
		dialog.fill("Type "+raw[:10]+" to confirm", "svc_wrong")
		if got := dialog.failing(short, func(p *page) { p.click("button", "Revoke key") }); !strings.Contains(got, "is disabled") {
			t.Errorf("a wrong text revokes: %s", got)
		}
		dialog.fill("Type "+raw[:10]+" to confirm", raw[:10])
		dialog.click("button", "Revoke key")
		p.goneElement("dialog", "Revoke this key?")
		p.expect("Revoked")
		p.goneElement("button", "Revoke key…")
		if status, _ := old.call(t, "GET", "/api/v1/whoami/", nil); status != http.StatusUnauthorized {
			t.Errorf("status %d", status)
		}
		p.click("DisclosureTriangle", "Explain a request…")
		p.fill("Path", "/api/v1/events/")
		p.press("Enter")
		p.expect("Refused: 401 key_revoked")
	})
}

// TestAPIKeysOfThoseWhoMayNotWriteThem shows keys to a member, and to an organization whose plan has none.
func TestAPIKeysOfThoseWhoMayNotWriteThem(t *testing.T) {
	t.Parallel()
	s := start(t)
	c, other := s.customer(t, "Acme"), s.customer(t, "Other")
	id, _ := c.newKey(t, "Back end", "events:write audit:read")
	foreign, _ := other.newKey(t, "Foreign", "events:read")
	p := open(t, s.base)
	p.signIn(c.token)
	p.allow(http.StatusNotFound, "/api/v1/api-keys/"+foreign)
	p.visit("/console/keys/" + foreign + "/")
	p.expect("There is no such API key.")
	p.gone("Foreign")

	p.visit("/console/keys/?status=all")
	p.show(light, phone)
	if cut := evaluate[[]string](p, `[...document.querySelectorAll(".tag")].filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)`); len(cut) > 0 {
		t.Errorf("permissions are cut on a phone: %q", cut)
	}
	p.save("keys-all-phone")
	p.show(light, desktop)

	s.must(t, "PATCH", "/api/v1/organizations/"+c.id+"/", object{"plan": "free"}, nil)
	p.visit("/console/keys/")
	p.expect("The plan “free” has no API keys")
	p.goneElement("link", "New API key")
	p.visit("/console/keys/" + id + "/")
	p.expect("each request with an existing key gets 403")
	p.visit("/console/keys/new/")
	p.expect("The provider of this service can change the plan.")
	p.goneElement("button", "Create API key")
	s.must(t, "PATCH", "/api/v1/organizations/"+c.id+"/", object{"plan": "growth"}, nil)

	user := c.read(t, "/api/v1/api-keys/"+id+"/", "created_by")
	s.must(t, "PUT", "/api/v1/organizations/"+c.id+"/members/"+user+"/", object{"role": "member"}, nil)
	p.visit("/console/keys/" + id + "/")
	p.expect("Some of its permissions have no effect")
	p.goneElement("button", "Revoke key…")
	p.visit("/console/keys/new/")
	p.expect("It needs the permission api_keys:write")
	p.visit("/console/keys/")
	p.expectElement("link", "Back end")
	p.goneElement("link", "New API key")
}

// newKey creates an API key and returns its id and the raw key.
func (c *customer) newKey(t *testing.T, name, scope string) (id, raw string) {
	t.Helper()
	_, body := c.call(t, "POST", "/api/v1/api-keys/", object{"name": name, "scope": scope})
	var made struct{ ID, Key string }
	if err := json.Unmarshal(body, &made); err != nil || made.Key == "" {
		t.Fatalf("create a key: %s", body)
	}
	return made.ID, made.Key
}
