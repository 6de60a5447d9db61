package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// answerWithin is how long a caller waits for an answer. More counts as an error, as it would for a customer.
const answerWithin = 60 * time.Second

// caller makes requests with one credential.
type caller struct {
	base          string
	authorization string
	organization  string // the organization to act in; empty for that of the credential
	client        *http.Client
}

func newCaller(base, authorization string) caller {
	return caller{base: base, authorization: authorization, client: newClient(net.Dialer{})}
}

// anyCertificate accepts every certificate: the server of a test has one that it borrowed.
var anyCertificate = &tls.Config{InsecureSkipVerify: true}

func newClient(d net.Dialer) *http.Client {
	return &http.Client{
		Timeout:   answerWithin,
		Transport: &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 64, TLSClientConfig: anyCertificate},
	}
}

// answer is what came back. body is whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// code returns the code of a problem document. It is empty for another response.
func (a answer) code() string {
	var problem struct{ Code string }
	_ = json.Unmarshal(a.body, &problem) // not every answer is JSON
	return problem.Code
}

// call makes one request. body is sent as it is if it is a []byte, as JSON otherwise; nil sends none.
func (c caller) call(ctx context.Context, method, path string, body any) (answer, error) {
	text, isText := body.([]byte)
	if !isText && body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return answer{}, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(text))
	if err != nil {
		return answer{}, err
	}
	if c.authorization != "" {
		req.Header.Set("Authorization", c.authorization)
	}
	if c.organization != "" {
		req.Header.Set("X-Organization-Id", c.organization)
	}
	if len(text) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, read}, err
}

// must is call for what must succeed. It reads the answer into result, unless that is nil.
func (c caller) must(tb testing.TB, method, path string, body, result any) {
	tb.Helper()
	if err := c.try(tb.Context(), method, path, body, result); err != nil {
		tb.Fatal(err)
	}
}

func (c caller) try(ctx context.Context, method, path string, body, result any) error {
	a, err := c.call(ctx, method, path, body)
	switch {
	case err != nil:
		return err
	case a.status >= 300:
		return fmt.Errorf("%s %s: %d: %.300s", method, path, a.status, a.body)
	case result == nil:
		return nil
	}
	return json.Unmarshal(a.body, result)
}

// key makes an API key and returns its id and the value of its header Authorization.
func (c caller) key(tb testing.TB, scope string) (id, authorization string) {
	tb.Helper()
	var key struct{ ID, Key string }
	c.must(tb, "POST", "/api/v1/api-keys/", object{"name": "e2e", "scope": scope}, &key)
	return key.ID, "ApiKey " + key.Key
}

// subscribe makes a subscription and returns its id. No types are all types.
func (c caller) subscribe(tb testing.TB, url string, types ...string) string {
	tb.Helper()
	var sub struct{ ID string }
	c.must(tb, "POST", "/api/v1/webhooks/subscriptions/", object{"url": url, "event_types": append([]string{}, types...)}, &sub)
	return sub.ID
}

// publish publishes an event without data and returns its id.
func (c caller) publish(tb testing.TB, eventType string) string {
	tb.Helper()
	var made struct{ ID string }
	c.must(tb, "POST", "/api/v1/events/", event(eventType, object{}), &made)
	return made.ID
}

// drained waits until nothing is pending for a subscription.
func (c caller) drained(tb testing.TB, subscription string) {
	tb.Helper()
	var state struct {
		Pending int64 `json:"pending_deliveries"`
	}
	for deadline := time.Now().Add(patience); ; sleep(tb.Context(), 10*time.Millisecond) {
		c.must(tb, "GET", "/api/v1/webhooks/subscriptions/"+subscription+"/", nil, &state)
		if state.Pending == 0 {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%d deliveries are still pending", state.Pending)
		}
	}
}

// attempts reads the whole log of a subscription and counts the records of each attempt, by event id and number.
func (c caller) attempts(tb testing.TB, subscription string) map[string]int {
	tb.Helper()
	recorded := map[string]int{}
	for cursor := ""; ; {
		var page struct {
			Data []struct {
				EventID string `json:"event_id"`
				Number  int    `json:"attempt_number"`
			}
			NextCursor *string `json:"next_cursor"`
		}
		c.must(tb, "GET", "/api/v1/webhooks/subscriptions/"+subscription+"/deliveries/?limit=200"+cursor, nil, &page)
		for _, a := range page.Data {
			recorded[fmt.Sprintf("%s %d", a.EventID, a.Number)]++
		}
		if page.NextCursor == nil {
			return recorded
		}
		cursor = "&cursor=" + *page.NextCursor
	}
}

// whoami asks whom a credential belongs to. It returns the code of a refusal, or the user's e-mail address.
func (p *process) whoami(tb testing.TB, authorization string) (status int, code, email string) {
	tb.Helper()
	c := p.caller
	c.authorization = authorization
	a, err := c.call(tb.Context(), "GET", "/api/v1/whoami/", nil)
	if err != nil {
		tb.Fatal(err)
	}
	var body struct{ User struct{ Email string } }
	if err := json.Unmarshal(a.body, &body); err != nil {
		tb.Fatal(err)
	}
	return a.status, a.code(), body.User.Email
}

// get makes a request without a credential.
func get(tb testing.TB, url string) (status int, text string) {
	tb.Helper()
	a, err := newCaller(url, "").call(tb.Context(), "GET", "", nil)
	if err != nil {
		tb.Fatal(err)
	}
	return a.status, string(a.body)
}

// object is a JSON object.
type object = map[string]any

// organization is a customer with one owner.
type organization struct {
	caller
	name, id string
}

// account makes an organization on a plan, which calls by access token.
func (p *process) account(tb testing.TB, name, plan string) *organization {
	tb.Helper()
	var org, user struct{ ID string }
	var token struct{ Token string }
	email := strings.ReplaceAll(name, " ", "-") + "@example.com"
	p.must(tb, "POST", "/api/v1/organizations/", object{"name": name, "plan": plan}, &org)
	p.must(tb, "POST", "/api/v1/users/", object{"name": name, "email": email}, &user)
	p.must(tb, "PUT", "/api/v1/organizations/"+org.ID+"/members/"+user.ID+"/", object{"role": "owner"}, nil)
	p.must(tb, "POST", "/api/v1/users/"+user.ID+"/access-tokens/", object{"organization_id": org.ID}, &token)
	return &organization{newCaller(p.url, "Bearer "+token.Token), name, org.ID}
}

const everything = "api_keys:read api_keys:write webhooks:read webhooks:write events:read events:write audit:read"

// organization makes an organization on the plan enterprise, which calls by API key: its rate has no limit.
func (p *process) organization(tb testing.TB, name string) *organization {
	tb.Helper()
	t := p.account(tb, name, "enterprise")
	_, t.authorization = t.key(tb, everything)
	return t
}

// subscribeMany makes n subscriptions from eight connections.
func (t *organization) subscribeMany(tb testing.TB, n int, url string, types ...string) {
	tb.Helper()
	todo := make(chan struct{}, n)
	for range n {
		todo <- struct{}{}
	}
	close(todo)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range todo {
				body := object{"url": url, "event_types": append([]string{}, types...)}
				if url == "" {
					body["url"] = nil // a feed
				}
				if err := t.try(tb.Context(), "POST", "/api/v1/webhooks/subscriptions/", body, nil); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
}

// event is an event of a type with some data.
func event(eventType string, data object) object { return object{"type": eventType, "data": data} }
