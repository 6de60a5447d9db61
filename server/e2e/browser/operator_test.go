package browser

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// operate opens a page on which the operator is signed in.
func operate(t *testing.T, s *server) *page {
	t.Helper()
	p := open(t, s.base)
	p.signIn(operatorToken)
	return p
}

// confirm types a text into the dialog, and clicks its button.
func (p *page) confirm(text, button string) {
	p.tb.Helper()
	dialog := p.in("dialog", "")
	if text != "" {
		dialog.fill("to confirm", text)
	}
	dialog.click("button", button)
	p.goneElement("dialog", "")
}

// fromMenu opens the menu of the page and clicks an item.
func (p *page) fromMenu(item string) {
	p.tb.Helper()
	p.click("button", "More")
	p.click("menuitem", item)
}

// TestOrganizations follows a customer in the console, from its first day to its last.
func TestOrganizations(t *testing.T) {
	t.Parallel()
	s := start(t)
	acme := s.customer(t, "Acme")
	acme.subscribe(t, object{"url": receive(t).url("a")})
	acme.create(t, "/api/v1/api-keys/", object{"name": "Back end", "scope": "events:write"})
	path := "/console/organizations/" + acme.id + "/"
	p := operate(t, s)

	p.visit("/console/organizations/")
	p.click("button", "New organization")
	p.allow(http.StatusUnprocessableEntity, "/api/v1/organizations/")
	p.in("dialog", "").click("button", "Create organization")
	p.expect("This may not be empty.") // at the field of the name
	p.fill("Name", "Globex")
	p.choose("Plan", "growth")
	p.fill("External id", "globex-1")
	p.in("dialog", "").doubleClick("button", "Create organization")
	p.expectElement("heading", "Globex")
	var found struct{ Data []object }
	if s.must(t, "GET", "/api/v1/organizations/?search=globex", nil, &found); len(found.Data) != 1 {
		t.Errorf("a double click made %v", found.Data)
	}
	p.fromMenu("Delete if empty…")
	p.confirm("Globex", "Delete organization")
	p.expectElement("heading", "Organizations")
	p.in("table", "Organizations").gone("Globex")
	p.in("search", "Filters").fill("Search", "acm")
	p.press("Enter")
	p.expectPath("/console/organizations/?search=acm")
	p.gone("Default enterprise")
	p.in("table", "Organizations").click("link", "Acme")
	p.expect("1 of 10,000") // keys
	p.expect("Waiting deliveries 0")
	p.in("table", "Usage by day").expect(time.Now().UTC().Format(time.DateOnly) + " 0 ") // the audit log alone has stored something

	t.Run("the plan", func(t *testing.T) {
		p.click("button", "Change plan…")
		dialog := p.in("dialog", "")
		dialog.choose("Plan", "free")
		dialog.expect("1 subscription stops.")
		dialog.expect("1 API key is refused")
		p.look("organization-change-plan")
		dialog.click("button", "Change plan")
		p.expect("Plan free")
		if got := s.read(t, "/api/v1/organizations/"+acme.id+"/", "plan"); got != "free" {
			t.Errorf("the plan is %s", got)
		}
		s.must(t, "PATCH", "/api/v1/organizations/"+acme.id+"/", object{"plan": "enterprise"}, nil)
		p.visit(path)
	})
	t.Run("a member", func(t *testing.T) {
		p.click("button", "Add member…")
		dialog := p.in("dialog", "")
		dialog.fill("User", "dev@acme.example")
		p.in("option", "dev@acme.example").expect("New user")
		p.press("Enter")
		dialog.choose("Role", "owner")
		dialog.doubleClick("button", "Add member")
		p.in("row", "dev@acme.example").expect("owner")
		p.in("row", "dev@acme.example").click("button", "Change role…")
		dialog.choose("Role", "member")
		dialog.click("button", "Change role")
		p.in("row", "dev@acme.example").expect("member")
		p.in("row", "dev@acme.example").click("button", "Change role…")
		p.click("button", "Remove from the organization…")
		p.confirm("", "Remove member")
		p.in("table", "Members").gone("dev@acme.example")
		p.expect("Removed ")
	})
	t.Run("the portal link", func(t *testing.T) {
		p.click("button", "Create portal link…")
		dialog := p.in("dialog", "")
		dialog.choose("Role", "member")
		dialog.expect("Allows api_keys:read, audit:read, events:read, webhooks:read.")
		dialog.fill("Return address", "https://example.com/settings")
		p.look("organization-portal")
		dialog.click("button", "Create portal link")
		dialog.expect("It works once")
		dialog.click("button", "Copy link")
		link := p.copied()
		if !strings.HasPrefix(link, s.base+"/console/#link=") {
			t.Fatalf("copied %q", link)
		}
		customer := open(t, s.base)
		customer.visit(strings.TrimPrefix(link, s.base))
		customer.expect("Back to example.com")
		customer.goneElement("link", "Organizations")
		customer.goneElement("link", "New subscription")
		p.press("Escape")
	})
	t.Run("the switch to it", func(t *testing.T) {
		p.click("link", "Switch to Acme")
		p.await(func() string {
			if !strings.HasSuffix(p.path(), "?org="+acme.id) {
				return "the page is at " + p.path()
			}
			return ""
		})
		p.visit(path)
	})
	t.Run("its end", func(t *testing.T) {
		p.fromMenu("Close organization…")
		p.expect("1 API key, 1 access token")
		p.expect("1 subscription, 2 memberships")
		p.look("organization-close")
		p.confirm("Acme", "Close organization")
		p.expect("All of its data is removed.")
		if status, _ := acme.call(t, "GET", "/api/v1/whoami/", nil); status != http.StatusUnauthorized {
			t.Errorf("the owner's token gets %d", status)
		}
	})
}

// TestPlansRolesAndPermissions creates, changes and deletes each of them, and meets each refusal.
func TestPlansRolesAndPermissions(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := operate(t, s)
	p.allow(http.StatusUnprocessableEntity, "/api/v1/")
	p.allow(http.StatusConflict, "/api/v1/")

	p.visit("/console/permissions/")
	p.click("button", "New permission")
	p.fill("Key", "Orders")
	p.in("dialog", "").click("button", "Create permission")
	p.expect("This must be a permission such as orders:read")
	p.fill("Key", "orders:read")
	p.fill("Allows to", "<b>Read</b> orders")
	p.expect("The roles operator, owner, customer and member have it from now on.")
	p.click("checkbox", "Internal")
	p.expect("The role operator has it from now on.")
	p.in("dialog", "").click("button", "Create permission")
	p.expectElement("heading", "orders:read")
	p.fill("Allows to", "Read <i>orders</i>")
	p.click("button", "Change description")
	p.await(func() string {
		if got := s.read(t, "/api/v1/permissions/orders:read/", "description"); got != "Read <i>orders</i>" {
			return "the description is " + got
		}
		return ""
	})

	p.visit("/console/roles/")
	p.click("button", "New role")
	p.fill("Name", "support")
	p.click("checkbox", "orders:read")
	p.in("dialog", "").doubleClick("button", "Create role")
	p.expectElement("heading", "support")
	p.click("checkbox", "webhooks:read")
	p.click("checkbox", "orders:read")
	p.expect("Adds webhooks:read.")
	p.expect("Removes orders:read.")
	p.click("button", "Change role")
	p.gone("Adds webhooks:read.")
	if got := s.read(t, "/api/v1/roles/support/", "permissions"); got != "[webhooks:read]" {
		t.Errorf("the role has %s", got)
	}
	p.visit("/console/permissions/orders%3Aread/")
	p.click("button", "Delete permission…")
	p.confirm("orders:read", "Delete permission")
	p.expectElement("heading", "Permissions")
	p.visit("/console/roles/support/")
	p.click("button", "Delete role…")
	p.confirm("", "Delete role")
	p.expectElement("heading", "Roles")

	p.visit("/console/plans/")
	p.click("button", "New plan")
	p.fill("Name", "small")
	p.fill("Requests a minute", "many")
	p.in("dialog", "").click("button", "Create plan")
	p.in("dialog", "").expectElement("textbox", "Requests a minute")
	p.expectFocus("textbox", "Requests a minute") // the field with the error
	p.fill("Requests a minute", "60")
	p.fill("Stored data a day", "0.5")
	p.in("dialog", "").click("button", "Create plan")
	p.expectElement("heading", "small")
	p.fill("Requests a minute", "1,200")
	p.click("checkbox", "Webhooks")
	p.fill("Active API keys", "1")
	on := s.create(t, "/api/v1/organizations/", object{"name": "On the plan", "plan": "small"})
	keys := client{s.base, "Bearer " + operatorToken, on}
	for range 2 {
		keys.create(t, "/api/v1/api-keys/", object{"name": "Back end", "scope": "events:write"})
	}
	p.click("button", "Change plan…")
	p.in("dialog", "").expect("1 organization on the plan has these limits")
	p.in("dialog", "").expect("All subscriptions stop.")
	p.in("dialog", "").expect("Over the new limit: On the plan (2 API keys).")
	p.in("row", "Requests a minute").expect("60 1,200")
	p.confirm("", "Change plan")
	s.must(t, "PATCH", "/api/v1/organizations/"+on+"/", object{"plan": "growth"}, nil)
	p.await(func() string {
		if got := s.read(t, "/api/v1/plans/small/", "api_rate_limit_per_minute"); got != "1200" {
			return "the limit is " + got
		}
		return ""
	})
	p.visit("/console/plans/enterprise/")
	p.click("button", "Delete plan…")
	p.in("dialog", "").click("button", "Delete plan")
	p.in("dialog", "").expect("organizations have it; give them another plan first")
	p.visit("/console/plans/small/")
	p.click("button", "Delete plan…")
	p.confirm("", "Delete plan")
	p.expectElement("heading", "Plans")
	p.in("table", "Plans").gone("small")
	p.allow(http.StatusNotFound, "/api/v1/plans/small/")
	p.visit("/console/plans/small/")
	p.expect("There is no such plan. It was deleted, or its address is wrong.")
}

// TestUsers follows a person, from the first access token to the erasure.
func TestUsers(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.customer(t, "Acme")
	p := operate(t, s)
	p.visit("/console/users/")
	p.click("button", "New user")
	p.fill("E-mail address", "jane@acme.example")
	p.fill("Name", "Jane")
	p.in("dialog", "").doubleClick("button", "Create user")
	p.expectElement("heading", "Jane")
	p.expect("In no organization")
	id := regexp.MustCompile(`usr_\w+`).FindString(p.path())
	p.click("button", "Add to organization…")
	p.expectFocus("combobox", "Organization")
	p.press("acm")
	p.gone("Default org_")
	p.in("option", "Acme").expect("org_")
	p.press("Enter")
	p.choose("Role", "owner")
	p.in("dialog", "").doubleClick("button", "Add member")
	p.in("table", "Memberships").expect("Acme owner")

	p.click("button", "New access token")
	p.fill("Name", "Laptop")
	p.in("dialog", "").doubleClick("button", "Create access token")
	p.expect("This is the only time that it is shown.")
	p.look("user-token")
	p.in("region", "Access token Laptop").click("button", "Copy")
	jane := client{base: s.base, authorization: "Bearer " + p.copied()}
	if got := jane.read(t, "/api/v1/whoami/", "organization"); !strings.Contains(got, "Acme") {
		t.Errorf("the token acts in %s", got)
	}
	p.click("button", "I have saved it")
	p.gone(strings.TrimPrefix(jane.authorization, "Bearer "))
	var tokens struct{ Data []object }
	if s.must(t, "GET", "/api/v1/users/"+id+"/access-tokens/", nil, &tokens); len(tokens.Data) != 1 {
		t.Errorf("a double click made %v", tokens.Data)
	}

	p.fromMenu("Deactivate user…")
	p.confirm("", "Deactivate user")
	p.expect("Inactive")
	if status, _ := jane.call(t, "GET", "/api/v1/whoami/", nil); status != http.StatusUnauthorized {
		t.Errorf("the token of an inactive user gets %d", status)
	}
	p.fromMenu("Activate user…")
	p.confirm("", "Activate user")
	p.visit("/console/users/?sort=last_used_at")
	p.in("row", "Jane").expect("Acme (owner)")
	p.visit("/console/users/" + id + "/")
	p.in("table", "Access tokens").click("button", "Revoke…")
	p.in("dialog", "").expect("Laptop was") // Keyhook writes the last use down later
	p.confirm("", "Revoke token")
	p.in("row", "Laptop").expect("Revoked")

	p.fromMenu("Erase user…")
	p.expect("0 access tokens, 0 API keys")
	p.confirm("jane@acme.example", "Erase user")
	p.expect("No copy of the personal data is left.")
	p.gone("jane@acme.example")
}

// TestSystem holds and releases the queue, and makes a backup.
func TestSystem(t *testing.T) {
	t.Parallel()
	s, r := start(t), receive(t)
	acme := s.customer(t, "Acme")
	subscription := acme.subscribe(t, object{"url": r.url("a")})
	p := operate(t, s)
	p.visit("/console/system/")
	p.expect("Checks: ready")
	p.expect("keyhook.db")
	p.click("button", "Hold queue…")
	p.fill("Reason", fit(nasty, 100))
	p.in("dialog", "").doubleClick("button", "Hold queue")
	p.expect("The queue is held: nothing is sent")
	p.expect(strings.TrimSpace(fit(nasty, 100)))
	for range 3 {
		acme.publish(t, "order.paid", object{})
	}
	acme.await(t, subscription, "pending_deliveries", "3")
	p.reload()
	p.expect("Deliveries: held")
	p.in("row", "Acme").expect("127.0.0.1")
	p.look("system-held")
	if got := len(r.arrived("a")); got != 0 {
		t.Errorf("%d deliveries arrived during the hold", got)
	}
	p.click("button", "Release queue…")
	p.confirm("", "Release queue")
	p.expect("Released 3 deliveries.")
	r.await(t, "a", 3)

	p.click("button", "Hold queue…")
	p.in("dialog", "").click("button", "Hold queue")
	acme.publish(t, "order.paid", object{})
	p.click("button", "Discard deliveries…")
	p.confirm("discard", "Discard and release")
	p.expect("The queue is released.")

	p.click("button", "Back up now…")
	p.in("dialog", "").click("button", "Make a backup")
	p.in("dialog", "The backup is made").expect("SHA-256")
	p.press("Escape")
	for _, name := range []string{"Download OpenAPI file", "As JSON", "Metrics"} {
		p.expectElement("link", name)
	}
	href := evaluate[string](p, `document.querySelector("a[download]").href`)
	if status, _ := s.call(t, "GET", strings.TrimPrefix(href, s.base), nil); status != http.StatusOK {
		t.Errorf("%s: %d", href, status)
	}
}

// TestCustomersSeeNoOperatorPages opens the pages as the owner of an organization, and as an operator without write permissions.
func TestCustomersSeeNoOperatorPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	acme := s.customer(t, "Acme")
	p := open(t, s.base)
	p.signIn(acme.token)
	for _, path := range []string{"organizations/", "organizations/" + acme.id + "/", "system/"} {
		p.visit("/console/" + path)
		p.expect("It needs the permission platform:read.")
		p.goneElement("link", "Organizations")
	}
	s.must(t, "POST", "/api/v1/roles/", object{"name": "auditor", "permissions": []string{"platform:read"}}, nil)
	user := s.create(t, "/api/v1/users/", object{"email": "auditor@example.com"})
	s.must(t, "PUT", "/api/v1/organizations/"+acme.id+"/members/"+user+"/", object{"role": "auditor"}, nil)
	var token struct{ Token string }
	s.must(t, "POST", "/api/v1/users/"+user+"/access-tokens/", object{"organization_id": acme.id, "expires_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}, &token)
	p = open(t, s.base)
	p.signIn(token.Token)
	for path, text := range map[string]string{
		"organizations/": "Acme", "organizations/" + acme.id + "/": "Plan enterprise", "users/": "auditor@example.com", "users/" + user + "/": "Memberships",
		"plans/growth/": "600", "roles/auditor/": "platform:read", "permissions/": "Publish events", "system/": "Checks: ready",
	} {
		p.visit("/console/" + path)
		p.expect(text)
		for _, button := range evaluate[[]string](p, `[...document.querySelectorAll("main button")].map(b => b.innerText + (b.ariaLabel ?? ""))`) {
			if regexp.MustCompile("^(New|Change|Delete|Add|Create|Release|Hold|Back up|Revoke|More)").MatchString(button) {
				t.Errorf("%s has the button %q", path, button)
			}
		}
	}
}

// TestHowCustomersAreDoing sorts the organizations, and all subscriptions.
func TestHowCustomersAreDoing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := operate(t, w.server)
	names := func(column int) string {
		return evaluate[string](p, fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].map(r => r.cells[%d].innerText.trim().slice(0, 30)).join(" | ")`, column))
	}
	time.Sleep(1500 * time.Millisecond) // the figures may be a second old
	p.visit("/console/organizations/?search=Acme")
	row := p.in("row", "Acme")
	row.expect("2")
	last := evaluate[string](p, `[...document.querySelector("tbody tr").cells].at(-1).innerText.trim()`)
	if !regexp.MustCompile(`^(now|\d+ sec\. ago)`).MatchString(last) { // how long the world took to make
		t.Errorf("the last event was %s", last)
	}
	p.visit("/console/organizations/")
	p.expectElement("columnheader", "In trouble")
	if got := names(0); !strings.HasPrefix(got, "Acme |") {
		t.Errorf("the order is %s", got)
	}
	p.look("organizations-sorted")
	p.click("link", "Last event")
	p.expectPath("/console/organizations/?sort=last_event_at")
	p.click("link", "Last event")
	p.expectPath("/console/organizations/")

	p.visit("/console/subscriptions/?in=all")
	p.expect("Acme")
	p.click("link", "Address")
	p.expectPath("/console/subscriptions/?in=all&sort=address")
	if got := names(1); strings.Index(got, "/disabled") > strings.Index(got, "/healthy") {
		t.Errorf("the order is %s", got)
	}
	p.look("subscriptions-everywhere")
	p.click("link", "Organization")
	p.expectPath("/console/subscriptions/?in=all&sort=customer")
	p.in("search", "Filters").fill("Search", "warehouse")
	p.press("Enter")
	p.gone("/disabled")
	p.in("row", "/healthy").click("link", "Acme")
	p.expectPath("/console/organizations/" + w.acme.id + "/")
}
