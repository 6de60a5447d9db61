// Package servertest starts servers for tests, makes requests and checks every response against openapi.yaml. Only tests import it.
package servertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Fixture is a server with a real store on a real file, and its log.
type Fixture struct {
	Store  *storage.Store
	Server *server.Server
	URL    string
	Client *http.Client // of the server at URL
	Log    *Lines
	Stop   func() // stops listening
}

// Start starts a server that listens on loopback. change may change its options.
func Start(t testing.TB, change ...func(*server.Options)) *Fixture {
	t.Helper()
	f := Build(t, change...)
	listening := httptest.NewServer(f.Server)
	t.Cleanup(listening.Close)
	f.URL, f.Stop = listening.URL, listening.Close
	return f
}

// Build returns a server that does not listen.
func Build(t testing.TB, change ...func(*server.Options)) *Fixture {
	t.Helper()
	return BuildOn(t, storagetest.Open(t), change...)
}

// BuildOn is Build on an open store.
func BuildOn(t testing.TB, store *storage.Store, change ...func(*server.Options)) *Fixture {
	t.Helper()
	f := &Fixture{Store: store, Client: Client, Log: &Lines{}}
	o := server.Options{
		Store:   f.Store,
		Console: new(console.Options),
		Tester: Tester(func(context.Context) (webhook.Attempt, error) {
			return webhook.Attempt{
				ID: "att_" + SomeID, SubscriptionID: "sub_" + SomeID, EventID: "evt_" + SomeID, EventType: "test", Number: 1,
				Trigger: webhook.ByTest, Outcome: webhook.Succeeded,
			}, nil
		}),
		CheckURL: egress.Policy{}.CheckURL,
		Logger:   slog.New(slog.NewJSONHandler(f.Log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	if f.Server, err = server.New(o); err != nil {
		t.Fatalf("new server: %v", err)
	}
	return f
}

// Tester replaces the dispatcher. The tests of package dispatch cover test deliveries.
type Tester func(context.Context) (webhook.Attempt, error)

func (f Tester) Test(ctx context.Context, _ int64, _, _ string) (webhook.Attempt, error) {
	return f(ctx)
}

// Lines collects a log.
type Lines struct {
	Mu   sync.Mutex
	Text bytes.Buffer
}

func (l *Lines) Write(b []byte) (int, error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.Text.Write(b)
}

func (l *Lines) String() string {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.Text.String()
}

// Call is a request: "METHOD /path", an Authorization header, the body, and further headers as name, value, name, value.
type Call struct {
	Line   string
	As     string
	Body   string
	Header []string
}

// NewCall returns a request.
func NewCall(line, as, body string, header ...string) Call { return Call{line, as, body, header} }

// Response is a response whose body has been read.
type Response struct {
	*http.Response
	Text string
}

// Field returns a string at the top level of the body; empty if there is none.
func (a Response) Field(name string) string {
	var object map[string]any
	_ = json.Unmarshal([]byte(a.Text), &object)
	text, _ := object[name].(string)
	return text
}

// Fields returns "field: code" for each problem with a field.
func (a Response) Fields() []string {
	var p struct {
		Errors []struct{ Field, Code string }
	}
	_ = json.Unmarshal([]byte(a.Text), &p)
	var list []string
	for _, e := range p.Errors {
		list = append(list, e.Field+": "+e.Code)
	}
	return list
}

var Client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{MaxIdleConnsPerHost: 64},
}

// Do makes a request with further headers as name, value, name, value. It fails the test unless the response has what every
// response must have.
func (f *Fixture) Do(t testing.TB, line, as, body string, header ...string) Response {
	t.Helper()
	return f.Call(t, NewCall(line, as, body, header...))
}

// Call makes a request, as Do does.
func (f *Fixture) Call(t testing.TB, c Call) Response {
	t.Helper()
	method, path, _ := strings.Cut(c.Line, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, f.URL+path, strings.NewReader(c.Body))
	if err != nil {
		t.Fatalf("%s: %v", c.Line, err)
	}
	if c.As != "" {
		r.Header.Set("Authorization", c.As)
	}
	if c.Body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(c.Header); i += 2 {
		r.Header.Set(c.Header[i], c.Header[i+1])
	}
	response, err := f.send(r)
	if err != nil {
		t.Fatalf("%s: %v", c.Line, err)
	}
	a := Response{response, Read(t, response)}
	CheckResponse(t, c.Line, a)
	return a
}

// send sends a request over the network, or to the handler if the server does not listen.
func (f *Fixture) send(r *http.Request) (*http.Response, error) {
	if f.URL != "" {
		return f.Client.Do(r)
	}
	r.RemoteAddr = "127.0.0.1:1"
	return f.Handle(r), nil
}

// Handle passes a request to the handler, as if it came from its RemoteAddr.
func (f *Fixture) Handle(r *http.Request) *http.Response {
	r.RequestURI = r.URL.RequestURI()
	w := httptest.NewRecorder()
	f.Server.ServeHTTP(w, r)
	response := w.Result()
	response.Request = r
	for name, values := range response.Header { // as net/http does when it reads a response
		delete(response.Header, name)
		response.Header[http.CanonicalHeaderKey(name)] = values
	}
	return response
}

// CheckResponse checks what every response must have, and that request and response are as openapi.yaml describes them.
func CheckResponse(t testing.TB, line string, a Response) {
	t.Helper()
	id := a.Header.Get("X-Request-Id")
	if id == "" {
		t.Errorf("%s: no X-Request-Id", line)
	}
	d, err := Described()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	for _, wrong := range d.check(a) {
		t.Errorf("%s: %d is not as openapi.yaml has it: %s", line, a.StatusCode, wrong)
	}
	_, path, _ := strings.Cut(line, " ")
	path, _, _ = strings.Cut(path, "?")
	mayRedirect := strings.Trim(path, "/") == "" || strings.HasPrefix(path, "/console/oidc/")
	if a.StatusCode >= 300 && a.StatusCode < 400 && a.StatusCode != http.StatusNotModified && !mayRedirect {
		t.Errorf("%s: status %d redirects", line, a.StatusCode)
	}
	if a.StatusCode < 400 || strings.HasPrefix(line, "HEAD ") || strings.Contains(line, "/readyz") {
		return
	}
	if got := a.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("%s: status %d with Content-Type %q", line, a.StatusCode, got)
	}
	var p struct {
		Type, Title, Detail, Code string
		Status                    int
		RequestID                 string `json:"request_id"`
	}
	if err := json.Unmarshal([]byte(a.Text), &p); err != nil {
		t.Errorf("%s: problem: %v", line, err)
	}
	if p.Type == "" || p.Title == "" || p.Detail == "" || p.Code == "" || p.Status != a.StatusCode || p.RequestID != id {
		t.Errorf("%s: incomplete problem: %s", line, a.Text)
	}
	if strings.Contains(a.Text, "SELECT") || strings.Contains(a.Text, "sqlite") || strings.Contains(a.Text, "goroutine") {
		t.Errorf("%s: the problem shows internal details: %s", line, a.Text)
	}
}

// Want fails the test unless the response has the status and the code. An empty code means any.
func (a Response) Want(t testing.TB, status int, code string) Response {
	t.Helper()
	if a.StatusCode != status || code != "" && a.Field("code") != code {
		t.Errorf("%s %s: status %d, want %d %s: %s", a.Request.Method, a.Request.URL.Path, a.StatusCode, status, code, a.Text)
	}
	return a
}

func Bearer(c access.Credential) string { return "Bearer " + c.Reveal() }
func APIKey(c access.Credential) string { return "ApiKey " + c.Reveal() }

// Operator is the Authorization header of the first operator.
const Operator = "Bearer " + storagetest.OperatorToken

// Paths and parts of paths.
const (
	Orgs  = "/api/v1/organizations/"
	Users = "/api/v1/users/"
	// SomeID has the form of an id, and belongs to nothing.
	SomeID = "01h455vb4pex5vsknk084sn02q"
)

// Plan creates a plan.
func (f *Fixture) Plan(t testing.TB, name string, apiKeys, webhooks bool, limit string) {
	t.Helper()
	body, _ := json.Marshal(map[string]any{
		"name": name, "api_keys": apiKeys, "webhooks": webhooks, "api_rate_limit_per_minute": json.RawMessage(limit),
	})
	f.Do(t, "POST /api/v1/plans/", Operator, string(body)).Want(t, http.StatusCreated, "")
}

// Move gives an organization another plan.
func (f *Fixture) Move(t testing.TB, organization, plan string) {
	t.Helper()
	f.Do(t, "PATCH /api/v1/organizations/"+organization+"/", Operator, `{"plan":"`+plan+`"}`).Want(t, http.StatusOK, "")
}

// Read reads a whole body and closes it.
func Read(t testing.TB, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return string(b)
}

// Page is the body of a page.
type Page struct {
	Data       []map[string]any `json:"data"`
	HasMore    *bool            `json:"has_more"`
	NextCursor *string          `json:"next_cursor"`
}

// List reads one page.
func (f *Fixture) List(t testing.TB, as, path string) Page {
	t.Helper()
	var page Page
	if err := json.Unmarshal([]byte(f.Do(t, "GET "+path, as, "").Want(t, 200, "").Text), &page); err != nil {
		t.Fatal(err)
	}
	if page.Data == nil || page.HasMore == nil || *page.HasMore != (page.NextCursor != nil) {
		t.Fatalf("%s: incomplete page %+v", path, page)
	}
	return page
}

// All reads a list page by page.
func (f *Fixture) All(t testing.TB, as, path, id string, limit int) (ids []string) {
	t.Helper()
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	for next := ""; ; {
		page := f.List(t, as, fmt.Sprintf("%s%slimit=%d%s", path, join, limit, next))
		for _, item := range page.Data {
			ids = append(ids, item[id].(string))
		}
		if page.NextCursor == nil {
			return ids
		}
		if len(page.Data) != limit {
			t.Fatalf("%s: a page of %d with more behind it, want %d", path, len(page.Data), limit)
		}
		next = "&cursor=" + url.QueryEscape(*page.NextCursor)
	}
}

// Attempted publishes events to a subscription and records one attempt of each: odd ones fail, even ones succeed.
func (f *Fixture) Attempted(t testing.TB, owner access.Principal, sub webhook.Subscription, n int) {
	t.Helper()
	for range n {
		storagetest.Publish(t, f.Store, owner, "user.created")
	}
	x := storagetest.Customer{Store: f.Store, Owner: owner, Sub: sub}
	jobs := slices.DeleteFunc(x.Jobs(t), func(j webhook.Job) bool { return j.EventType != "user.created" })
	for i, job := range jobs[len(jobs)-n:] {
		result := x.Result(t, job, x.Begin(t, job), i%2 == 0)
		result.ResponseBody, result.ResponseHeader = "thanks", "X-Request-Id: 7\n"
		result.RetryAt, result.ProbeAt = time.Now().Add(time.Minute).UnixMilli(), 0
		if _, err := f.Store.Queue.Record(t.Context(), result); err != nil || result.Attempt == 0 {
			t.Fatalf("record attempt %d: %v", result.Attempt, err)
		}
	}
}
