package browser

import (
	"net/http"
	"strings"
	"testing"
)

// subscriptionsOf is the path of the API.
const subscriptions = "/api/v1/webhooks/subscriptions/"

// deliveries returns the path of the attempts of a subscription.
func deliveries(subscription string) string { return subscriptions + subscription + "/deliveries/" }

// console returns the path of the page of a subscription.
func console(subscription string) string { return "/console/subscriptions/" + subscription + "/" }

// newest returns the id of the newest attempt of a subscription.
func (c *customer) newest(t *testing.T, subscription string) string {
	t.Helper()
	var list struct{ Data []struct{ ID string } }
	c.must(t, "GET", deliveries(subscription)+"?limit=1", nil, &list)
	if len(list.Data) == 0 {
		t.Fatal("no attempt")
	}
	return list.Data[0].ID
}

func TestCreatingASubscription(t *testing.T) {
	t.Parallel()
	s, r := start(t), receive(t)
	c := s.customer(t, "Acme")
	c.publish(t, "order.paid", object{})
	p := open(t, s.base)
	p.signIn(c.token)
	p.visit("/console/subscriptions/")
	p.expect("No subscription yet")
	p.visit("/console/subscriptions/new/")

	p.allow(http.StatusUnprocessableEntity, subscriptions)
	p.fill("Address", "ftp://example.com/"+strings.Repeat("x", 1900))
	p.press("Enter")
	p.expect("Begin the URL with https:// or http://.")
	p.expectFocus("textbox", "Address")
	p.click("DisclosureTriangle", "More options")
	p.fill("Requests a second, at most", "many")
	p.click("button", "Create subscription")
	p.expect("Begin the URL with https:// or http://.")
	p.look("subscription-new-error")

	r.answer("hook", http.StatusUnauthorized, "wrong signature")
	p.fill("Address", r.url("hook?tenant=1"))
	p.fill("Event types", "order.paid, invoice.*")
	p.press("Enter")
	p.expectElement("button", "Remove order.paid")
	p.expectElement("button", "Remove invoice.*")
	p.fill("Description", "Two\nlines "+nasty)
	p.fill("Requests a second, at most", "50")
	p.click("checkbox", "In order")
	p.click("button", "Add header")
	p.fill("Name of header 1", "X-Tenant")
	p.fill("Value of header 1", "seventeen")
	p.fill("External id", "shop")
	evaluate[any](p, `[...document.querySelectorAll("button")].find(b => b.textContent.includes("Create")).click();
		document.querySelector("form").requestSubmit()`) // a double click
	p.expect("Save the signing secret")
	var made struct {
		Data []struct {
			Description, ExternalID string
			Types                   []string `json:"event_types"`
			Ordered                 bool
			Pace                    int            `json:"rate_limit_per_second"`
			Headers                 map[string]any `json:"headers"`
			Audit                   bool           `json:"audit_events"`
		}
	}
	c.must(t, "GET", subscriptions, nil, &made)
	if len(made.Data) != 1 {
		t.Fatalf("there are %d subscriptions", len(made.Data))
	}
	if m := made.Data[0]; !m.Ordered || m.Pace != 50 || m.Audit || len(m.Headers) != 1 || strings.Join(m.Types, " ") != "order.paid invoice.*" || !strings.HasPrefix(m.Description, "Two\nlines <script>") {
		t.Errorf("created %+v", m)
	}
	p.in("region", "1. Save the signing secret").click("button", "Copy")
	secret := p.copied()
	if !strings.HasPrefix(secret, "whsec_") {
		t.Errorf("copied %q", secret)
	}
	for language, text := range map[string]string{"Go": "func genuine(h http.Header, body []byte) bool", "Node": "timingSafeEqual", "Python": "hmac.compare_digest"} {
		p.click("button", language)
		p.expect(text)
	}
	p.click("button", "Send test")
	p.expect("http_status: 401 The receiver refuses the request. Compare the signing secret")
	p.expect("wrong signature")
	r.answer("hook", http.StatusOK, nasty)
	p.click("button", "Send test again")
	p.expect(nasty)
	p.gone("http_status: 401")
	if got := r.arrived("hook")[1].header; got.Get("X-Tenant") != "seventeen" || got.Get("X-Service-Event-Type") != "webhook_test" {
		t.Errorf("the test arrived with %v", got)
	}
	p.look("subscription-created")

	p.click("link", "Subscriptions") // the secret is not saved yet, so the page stays
	p.expect("Save it first: it cannot be shown again.")
	p.click("button", "I have saved it")
	p.gone(secret)
	p.click("link", "Open subscription")
	p.expect("Nothing waits")
}
