package webhooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

type feedPage struct {
	Data []struct {
		Cursor, Type, Body string
		EventID            string `json:"event_id"`
		Headers            map[string]string
	}
	NextCursor string `json:"next_cursor"`
	HasMore    bool   `json:"has_more"`
}

// feedOf returns a page of a feed.
func feedOf(t testing.TB, got servertest.Response) (p feedPage) {
	t.Helper()
	got.Want(t, 200, "")
	if err := json.Unmarshal([]byte(got.Text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFeeds(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, stranger := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	as := servertest.Bearer(token)
	created := f.Do(t, "POST /api/v1/webhooks/subscriptions/", as, `{"url":null,"event_types":["a"],"external_id":"reader","headers":{"X-Own":"secret"}}`).Want(t, 201, "")
	if !strings.Contains(created.Text, `"url":null`) {
		t.Error(created.Text)
	}
	f.Do(t, "POST /api/v1/webhooks/subscriptions/", as, `{"event_types":["a"]}`).Want(t, 422, "validation_failed")
	second, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "a")
	path := "/api/v1/webhooks/subscriptions/" + created.Field("id") + "/feed/"
	id := storagetest.Publish(t, f.Store, owner, "a").ID

	page := feedOf(t, f.Do(t, "GET "+path, as, ""))
	if len(page.Data) != 1 || page.HasMore || page.Data[0].EventID != id || page.Data[0].Headers["X-Own"] != "" || page.Data[0].Headers["X-Service-Attempt"] != "1" ||
		page.Data[0].Headers["webhook-id"] != id || page.Data[0].Headers["webhook-signature"] == "" || page.Data[0].Headers["webhook-timestamp"] == "" {
		t.Fatalf("%+v", page)
	}
	h := http.Header{}
	for name, value := range page.Data[0].Headers {
		h.Set(name, value)
	}
	body, now := []byte(page.Data[0].Body), time.Now()
	err1 := signature.Verify(created.Field("secret"), h, body, now, time.Minute)
	err2 := signature.VerifyStandard(created.Field("secret"), h, body, now, time.Minute)
	if err1 != nil || err2 != nil {
		t.Error(err1, err2)
	}
	same := strings.Replace(path, created.Field("id"), "reader", 1)
	if p := feedOf(t, f.Do(t, "GET "+same+"?wait=0&after="+page.NextCursor, as, "")); len(p.Data) != 0 || p.NextCursor != page.NextCursor {
		t.Errorf("%+v", p)
	}
	since := url.QueryEscape(time.Now().Add(-time.Hour).Format(time.RFC3339))
	foreign := feedOf(t, f.Do(t, "GET /api/v1/webhooks/subscriptions/"+second.ID+"/feed/?since="+since, as, "")).NextCursor
	for query, code := range map[string]string{
		"after=" + foreign: "invalid_cursor", "after=x": "invalid_cursor", "after=": "invalid_cursor", "limit=0": "invalid_parameter",
		"limit=101": "invalid_parameter", "wait=31": "invalid_parameter", "wait=-1": "invalid_parameter", "since=x": "invalid_parameter", "until=x": "unknown_parameter",
	} {
		f.Do(t, "GET "+path+"?"+query, as, "").Want(t, 400, code)
	}
	f.Do(t, "GET "+path+"?since="+since+"&after="+page.NextCursor, as, "").Want(t, 422, "validation_failed")
	f.Do(t, "GET "+path, servertest.Bearer(stranger), "").Want(t, 404, "not_found")
	_, blind := storagetest.Key(t, f.Store, owner, access.WebhooksRead)
	f.Do(t, "GET "+path, servertest.APIKey(blind), "").Want(t, 403, "permission_denied")
	for _, call := range []string{"recover/", "discard/"} {
		f.Do(t, "POST "+strings.Replace(path, "feed/", call, 1), as, "").Want(t, 409, "no_url")
	}
	f.Do(t, "PATCH "+strings.TrimSuffix(path, "feed/"), as, `{"is_active":false}`).Want(t, 200, "")
	if got := f.Do(t, "GET "+path+"?wait=30", as, "").Want(t, 409, "paused").Field("detail"); !strings.Contains(got, `"is_active": true`) || strings.Contains(got, "recover") {
		t.Errorf("a feed cannot be recovered, and the advice is %s", got)
	}
	text := f.Do(t, "GET /api/v1/events/"+id+"/explain/?subscription_id=reader", as, "").Want(t, 200, "").Text
	if !strings.Contains(text, `"verdict":"in_feed"`) || !strings.Contains(text, `"action":"reactivate"`) {
		t.Error(text)
	}
}

// TestCursorsAfterADeletion has retention delete the second of three events. The first one still waits for another subscription. A reader
// that begins then may go on from each event, and from the end of its page.
func TestCursorsAfterADeletion(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "", "a")
	read := func(query string) servertest.Response {
		return f.Do(t, "GET /api/v1/webhooks/subscriptions/"+sub.ID+"/feed/"+query, servertest.Bearer(token), "")
	}
	storagetest.Publish(t, f.Store, owner, "a")
	old := feedOf(t, read("")).Data[0].Cursor
	storagetest.Publish(t, f.Store, owner, "a")
	storagetest.Exec(t, f.Store, "UPDATE organizations SET expired_event = (SELECT max(id) FROM events WHERE type = 'a') WHERE id = ?", owner.Home.RowID)
	storagetest.Exec(t, f.Store, "DELETE FROM events WHERE id = (SELECT max(id) FROM events WHERE type = 'a')")
	third := storagetest.Publish(t, f.Store, owner, "a").ID
	page := feedOf(t, read(""))
	if len(page.Data) != 2 {
		t.Fatalf("%+v", page)
	}
	if p := feedOf(t, read("?after="+page.Data[0].Cursor)); len(p.Data) != 1 || p.Data[0].EventID != third {
		t.Errorf("after the first event: %+v", p)
	}
	for _, cursor := range []string{page.Data[1].Cursor, page.NextCursor} {
		if p := feedOf(t, read("?after="+cursor)); len(p.Data) != 0 {
			t.Errorf("after the last event: %+v", p)
		}
	}
	read("?after="+old).Want(t, 410, "cursor_expired")
}

// waiting is a reader that waits; its answer comes through the channel.
func waiting(t *testing.T, f *servertest.Fixture, path, as string) <-chan servertest.Response {
	t.Helper()
	answer := make(chan servertest.Response, 1)
	go func() {
		defer close(answer) // if there is no answer, the call ends this goroutine
		answer <- f.Do(t, "GET "+path+"?wait=30", as, "")
	}()
	return answer
}

// untilWaiting returns as soon as n readers wait.
func untilWaiting(t *testing.T, f *servertest.Fixture, n int) {
	t.Helper()
	for f.Store.Queue.WaitingReaders() < n {
		if t.Context().Err() != nil {
			t.Fatal("no reader waits")
		}
		runtime.Gosched()
	}
}

func TestWaitingForAFeed(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	other, _ := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "", "a")
	key, credential := storagetest.Key(t, f.Store, owner, access.EventsRead)
	path := "/api/v1/webhooks/subscriptions/" + sub.ID + "/feed/"
	began := time.Now()

	answer, revoked := waiting(t, f, path, servertest.Bearer(token)), waiting(t, f, path, servertest.APIKey(credential))
	untilWaiting(t, f, 2)
	storagetest.Publish(t, f.Store, other, "a")
	storagetest.Publish(t, f.Store, owner, "b")
	if err := f.Store.Directory.RevokeKey(t.Context(), owner.Actor("", ""), owner.Organization.RowID, key.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-answer:
		t.Fatalf("an event that is not wanted ended the wait: %s", got.Text)
	case got := <-revoked: // the audit event of the revocation woke it
		got.Want(t, 401, "key_revoked")
	}
	id := storagetest.Publish(t, f.Store, owner, "a").ID
	if page := feedOf(t, <-answer); len(page.Data) != 1 || page.Data[0].EventID != id {
		t.Errorf("%+v", page)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}

	for range 16 {
		_, leave, err := f.Store.Queue.AwaitEvents(owner.Organization.RowID)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
	}
	after := feedOf(t, f.Do(t, "GET "+path, servertest.Bearer(token), "")).NextCursor
	got := f.Do(t, "GET "+path+"?wait=1&after="+after, servertest.Bearer(token), "").Want(t, 429, "too_many_readers")
	if got.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// TestWaitingForALaterTime publishes an event before the time since which a reader wants them.
func TestWaitingForALaterTime(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "", "a")
	since := url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339))
	answer := make(chan servertest.Response, 1)
	go func() {
		answer <- f.Do(t, "GET /api/v1/webhooks/subscriptions/"+sub.ID+"/feed/?wait=2&since="+since, servertest.Bearer(token), "")
	}()
	untilWaiting(t, f, 1)
	storagetest.Publish(t, f.Store, owner, "a")
	if page := feedOf(t, <-answer); len(page.Data) != 0 {
		t.Errorf("%+v", page)
	}
}

// TestAStopEndsTheWait stops the server while a reader waits.
func TestAStopEndsTheWait(t *testing.T) {
	t.Parallel()
	f := servertest.Build(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "", "a")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.URL = "http://" + l.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- f.Server.Serve(ctx, l) }()
	answer := waiting(t, f, "/api/v1/webhooks/subscriptions/"+sub.ID+"/feed/", servertest.Bearer(token))
	untilWaiting(t, f, 1)
	began := time.Now()
	stop()
	got, answered := <-answer
	if !answered {
		t.Fatal("the reader got no answer")
	}
	if page := feedOf(t, got); page.NextCursor == "" || len(page.Data) > 0 {
		t.Errorf("%+v", page)
	}
	if err := <-served; err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("the stop took %s: %v", time.Since(began), err)
	}
}

// BenchmarkPublishBesideReaders publishes alone, and while a hundred readers of other organizations wait for events that do not come.
func BenchmarkPublishBesideReaders(b *testing.B) {
	for _, readers := range []int{0, 100} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			f := servertest.Start(b)
			owner, _ := storagetest.Organization(b, f.Store, "acme", "growth", access.RoleOwner)
			ctx, cancel := context.WithCancel(b.Context())
			var all sync.WaitGroup
			defer all.Wait()
			defer cancel()
			for i := range readers {
				reader, token := storagetest.Organization(b, f.Store, fmt.Sprintf("reader%d", i), "growth", access.RoleOwner)
				sub, _ := storagetest.Subscription(b, f.Store, reader, "", "a")
				all.Go(func() {
					idle(ctx, f.URL+"/api/v1/webhooks/subscriptions/"+sub.ID+"/feed/?wait=30", servertest.Bearer(token))
				})
			}
			for f.Store.Queue.WaitingReaders() < readers {
				runtime.Gosched()
			}
			for b.Loop() {
				if _, err := f.Store.Queue.PublishEvents(b.Context(), owner.Organization.RowID, []webhook.NewEvent{{Type: "a", Data: []byte(`{}`)}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// idle reads a feed again and again, until ctx ends.
func idle(ctx context.Context, url, as string) {
	for ctx.Err() == nil {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		r.Header.Set("Authorization", as)
		if answer, err := servertest.Client.Do(r); err == nil {
			answer.Body.Close()
		}
	}
}

// TestAFailingSubscriptionBecomesAFeed has no receiver any more, so nothing fails.
func TestAFailingSubscriptionBecomesAFeed(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/", "user.*")
	f.Attempted(t, owner, sub, 2) // one is delivered, one waits after a failure
	path, as := "/api/v1/webhooks/subscriptions/"+sub.ID+"/", servertest.Bearer(token)
	f.Do(t, "POST "+path+"discard/", as, "").Want(t, 202, "")
	if before := f.Do(t, "GET "+path, as, "").Want(t, 200, "").Text; !strings.Contains(before, `"consecutive_failures":1`) {
		t.Fatal(before)
	}
	after := f.Do(t, "PATCH "+path, as, `{"url":null}`).Want(t, 200, "").Text
	for _, want := range []string{`"status":"healthy"`, `"consecutive_failures":0`, `"failing_since":null`, `"last_error":null`} {
		if !strings.Contains(after, want) {
			t.Errorf("no %s in %s", want, after)
		}
	}
	f.Do(t, "PATCH "+path, as, `{"is_active":false}`).Want(t, 200, "")
	if paused := f.Do(t, "PATCH "+path, as, `{"url":"https://example.com/"}`).Want(t, 200, "").Text; !strings.Contains(paused, `"is_active":false`) {
		t.Error(paused)
	}
	if paused := f.Do(t, "PATCH "+path, as, `{"url":null}`).Want(t, 200, "").Text; !strings.Contains(paused, `"is_active":false`) {
		t.Errorf("what a person has paused is active: %s", paused)
	}
}

// TestHeadersOfAFeed has a prefix that is like the names of Standard Webhooks, which are in lower case.
func TestHeadersOfAFeed(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t, func(o *server.Options) { o.HeaderPrefix = "X-Webhook" })
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "", "a")
	storagetest.Publish(t, f.Store, owner, "a")
	page := feedOf(t, f.Do(t, "GET /api/v1/webhooks/subscriptions/"+sub.ID+"/feed/", servertest.Bearer(token), ""))
	for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature", "X-Webhook-Signature", "X-Webhook-Timestamp", "X-Webhook-Event-Id"} {
		if page.Data[0].Headers[name] == "" {
			t.Errorf("no %s in %v", name, page.Data[0].Headers)
		}
	}
}
