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
		p.expectElement("heading", "Subscriptions")
		if strings.Contains(p.path(), "link=") {
			t.Errorf("the link stays in the history: %s", p.path())
		}
		p.click("button", "admin")
		p.click("menuitem", "Sign out")
		p.expectElement("heading", "Sign in")
		p = open(t, s.base)
		p.allow(http.StatusUnauthorized, "/api/v1/session/")
		p.visit(link)
		p.expect("This link was used already or has expired")
		p.look("sign-in-used-link")
	})
	t.Run("an access token signs in, and a wrong one does not", func(t *testing.T) {
		token := regexp.MustCompile(`kat_\w+`).FindString(s.printed())
		p := open(t, s.base)
		p.allow(http.StatusUnauthorized, "/api/v1/session/")
		p.visit("/console/subscriptions/")
		p.fill("Access token", "kat_wrong")
		p.press("Enter")
		p.expectElement("alert", "")
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
