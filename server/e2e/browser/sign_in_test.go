package browser

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// TestSignIn signs in to the console with an access token and with the link of the first start, under a path.
func TestSignIn(t *testing.T) {
	t.Parallel()
	s := startBehind(t, "/keyhook", "KEYHOOK_BOOTSTRAP_TOKEN=")
	link := regexp.MustCompile(`http\S+/console/#link=\S+`).FindString(s.printed())
	if !strings.HasPrefix(link, s.base) {
		t.Fatalf("the first start prints the link %q in:\n%s", link, s.printed())
	}
	link = strings.TrimPrefix(link, s.base)

	t.Run("the link signs in once", func(t *testing.T) {
		p := open(t, s.base)
		p.visit(link)
		p.expectElement("heading", "Overview")
		if strings.Contains(p.path(), "link=") {
			t.Errorf("the link stays in the history: %s", p.path())
		}
		p.signOut("admin")
		p.expectElement("heading", "Sign in")
		p.allow(http.StatusUnauthorized, "/api/v1/session/")
		p.visit("/console/")
		evaluate[any](p, "window.sameTab = true")
		p.visit(link) // as pasted into the tab: the browser changes only the fragment
		if !evaluate[bool](p, "window.sameTab === true") {
			t.Error("the browser has loaded the page again, so this tests no change of the fragment")
		}
		p.expect("This link was used already or has expired")
		p.expectPath("/console/")
		p.look("sign-in-used-link")

		s.authorization = "Bearer " + regexp.MustCompile(`kat_\w+`).FindString(s.printed())
		var portal struct{ URL string }
		s.must(t, "POST", "/api/v1/organizations/"+s.create(t, "/api/v1/organizations/", object{"name": "Acme", "plan": "enterprise"})+"/portal-links/", object{}, &portal)
		p.visit(strings.TrimPrefix(portal.URL, s.base))
		p.expectElement("heading", "Overview")
		p.gone("does not work")
	})
	t.Run("a link asks before it ends the session of somebody else", func(t *testing.T) {
		p := open(t, s.base)
		p.signIn(regexp.MustCompile(`kat_\w+`).FindString(s.printed()))
		p.visit("/console/")
		evaluate[any](p, `localStorage.clear()`) // the server knows who is signed in; the browser need not remember
		p.allow(http.StatusConflict, "/api/v1/session/")
		var ids [2]string
		for i, name := range []string{"Other", "Third"} {
			ids[i] = s.create(t, "/api/v1/organizations/", object{"name": name, "plan": "enterprise"})
		}
		offer := func(id, role string) {
			var portal struct{ URL string }
			s.must(t, "POST", "/api/v1/organizations/"+id+"/portal-links/", object{"role": role}, &portal)
			p.visit(strings.TrimPrefix(portal.URL, s.base))
		}
		offer(ids[0], "owner")
		p.in("dialog", "").expect("You are signed in as admin. The link ends this session and signs you in as Other.")
		p.click("button", "Cancel")
		p.reload()
		p.expectElement("button", "admin")
		offer(ids[0], "owner")
		p.click("button", "Use the link")
		p.expectElement("button", "Other")
		offer(ids[0], "member") // the application sends its customer again: no question
		p.goneElement("dialog", "Sign in with this link?")
		p.goneElement("link", "New subscription")
		offer(ids[1], "owner")
		p.in("dialog", "").expect("You are signed in as Other. The link ends this session and signs you in as Third.")
		p.look("sign-in-offered")
		p.click("button", "Cancel")
		p.expectElement("button", "Other")
		offer(ids[1], "owner")
		p.click("button", "Use the link")
		p.expectElement("button", "Third")
		evaluate[any](p, `(() => {
			const send = fetch.bind(window);
			window.fetch = (url, init) => {
				if (!url.endsWith('/session/')) return send(url, init);
				window.fetch = send;
				return Promise.resolve(new Response('', { status: 500 }));
			};
		})()`)
		offer(ids[0], "owner") // nobody knows who is signed in
		p.expect("You are still signed in as")
		p.expectElement("button", "Third")
	})
	t.Run("an access token signs in, and a wrong one does not", func(t *testing.T) {
		token := regexp.MustCompile(`kat_\w+`).FindString(s.printed())
		p := open(t, s.base)
		p.allow(http.StatusUnauthorized, "/api/v1/session/")
		p.visit("/console/subscriptions/")
		p.fill("Access token", "kat_wrong")
		p.press("Enter")
		p.expect("This access token is malformed or unknown")
		p.look("sign-in-wrong-token")
		p.fill("Access token", token)
		p.click("button", "Sign in")
		p.expectPath("/console/subscriptions/")
		p.reload()
		p.expectElement("heading", "Subscriptions")
		p.press("/")
		p.expectFocus("combobox", "Search")
	})
}

// TestSignInWithTheIdentityProvider signs in at another site, under a path.
func TestSignInWithTheIdentityProvider(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, object{"sub": "idp|ida", "email": "ida@example.com", "email_verified": true})
	s := startBehind(t, "/keyhook", "KEYHOOK_OIDC_ISSUER="+i.url, "KEYHOOK_OIDC_AUDIENCE=keyhook",
		"KEYHOOK_CONSOLE_OIDC_CLIENT_ID=console", "KEYHOOK_CONSOLE_OIDC_CLIENT_SECRET=the-secret")
	// arrive opens the page for signing in, in a new browser.
	arrive := func(t *testing.T) *page {
		p := open(t, s.base)
		p.watch.visits(hostOf(i.url))
		p.allow(http.StatusUnauthorized, "/api/v1/session/")
		p.visit("/console/events/?type=order.paid")
		return p
	}
	const button = "Sign in with your account"

	t.Run("is refused for an unknown person, and the page says what to do", func(t *testing.T) {
		p := arrive(t)
		p.look("sign-in-oidc")
		if n := evaluate[int](p, `document.querySelectorAll(".button.primary").length`); n != 1 {
			t.Errorf("%d buttons look like the next step, not 1", n)
		}
		p.gone("The first start of Keyhook")
		p.click("link", button)
		p.click("link", "Continue")
		p.expect("this server has no such user")
		p.expectPath("/console/")
		p.look("sign-in-oidc-unknown-user")
	})
	t.Run("says when the person cancels, and a finished sign-in does not work again", func(t *testing.T) {
		p := arrive(t)
		p.click("link", button)
		p.click("link", "Cancel")
		p.expect("You cancelled the sign-in")
		p.visit("/console/oidc/callback/?state=x&code=y")
		p.expect("This sign-in was not started in this browser")
	})
	t.Run("signs in to all organizations of the person, and comes back to the page", func(t *testing.T) {
		user := s.create(t, "/api/v1/users/", object{"name": "Ida", "email": "ida@example.com"})
		for _, name := range []string{"First", "Second"} {
			id := s.create(t, "/api/v1/organizations/", object{"name": name, "plan": "enterprise"})
			s.must(t, "PUT", "/api/v1/organizations/"+id+"/members/"+user+"/", object{"role": "owner"}, nil)
		}
		p := arrive(t)
		p.click("link", button)
		p.click("link", "Continue")
		p.expectPath("/console/events/?type=order.paid")
		p.expectElement("button", "First")
		p.click("button", "First")
		p.click("option", "Second")
		p.expectElement("button", "Second")
		p.reload()
		p.expectElement("button", "Second")
		p.look("sign-in-oidc-switched")
		p.signOut("Ida")
		p.expectElement("link", button)
	})
}

// TestASecondTab signs in and out in one tab, and looks at the other.
func TestASecondTab(t *testing.T) {
	t.Parallel()
	s := start(t)
	acme := s.customer(t, "Acme")
	one := open(t, s.base)
	one.allow(http.StatusUnauthorized, "/api/v1/session/")
	one.visit("/console/events/")
	two := one.tab()
	two.allow(http.StatusUnauthorized, "/api/v1/")
	two.visit("/console/subscriptions/")
	two.fill("Access token", acme.token)
	two.click("button", "Sign in")
	two.expect("No subscription yet")
	one.expectElement("heading", "Events")
	one.signOut("Owner of Acme")
	one.expectElement("heading", "Sign in")
	two.expectElement("heading", "Sign in")
	one.fill("Access token", operatorToken) // somebody else
	one.click("button", "Sign in")
	two.expectElement("link", "Organizations")
}
