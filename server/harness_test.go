package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// testServer is a server with a real store on a real file, and its log.
type testServer struct {
	store  *storage.Store
	server *server.Server
	url    string
	client *http.Client // nil is client
	log    *lines
	stop   func() // stops listening
}

// start starts a server that listens on loopback. change may change its options.
func start(t testing.TB, change ...func(*server.Options)) *testServer {
	t.Helper()
	f := build(t, change...)
	listening := httptest.NewServer(f.server.Handler())
	t.Cleanup(listening.Close)
	f.url, f.stop = listening.URL, listening.Close
	return f
}

// build returns a server that does not listen.
func build(t testing.TB, change ...func(*server.Options)) *testServer {
	t.Helper()
	f := &testServer{store: storagetest.Open(t), log: &lines{}}
	o := server.Options{
		Store:    f.store.All(),
		Console:  new(console.Options),
		Tester:   tester(func(context.Context) (webhook.Attempt, error) { return webhook.Attempt{Trigger: webhook.ByTest}, nil }),
		CheckURL: egress.Policy{}.CheckURL,
		Logger:   slog.New(slog.NewJSONHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	if f.server, err = server.New(o); err != nil {
		t.Fatalf("new server: %v", err)
	}
	return f
}

// tester replaces the dispatcher. The tests of package dispatch cover test deliveries.
type tester func(context.Context) (webhook.Attempt, error)

func (f tester) Test(ctx context.Context, _ int64, _ string) (webhook.Attempt, error) { return f(ctx) }

// lines collects a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// call is a request: "METHOD /path", who makes it, the body, and further headers as name, value, name, value.
type call struct {
	line   string
	as     string // an Authorization header
	body   string
	header []string
}

// testResponse is a response whose body has been read.
type testResponse struct {
	*http.Response
	body string
}

// field returns a string at the top level of the body; empty if there is none.
func (a testResponse) field(name string) string {
	var object map[string]any
	_ = json.Unmarshal([]byte(a.body), &object)
	text, _ := object[name].(string)
	return text
}

// fields returns "field: code" for each problem with a field.
func (a testResponse) fields() []string {
	var p struct {
		Errors []struct{ Field, Code string }
	}
	_ = json.Unmarshal([]byte(a.body), &p)
	var list []string
	for _, e := range p.Errors {
		list = append(list, e.Field+": "+e.Code)
	}
	return list
}

var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{MaxIdleConnsPerHost: 64},
}

// do makes a request. It fails the test unless the response has what every response must have.
func (f *testServer) do(t testing.TB, c call) testResponse {
	t.Helper()
	method, path, _ := strings.Cut(c.line, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader(c.body))
	if err != nil {
		t.Fatalf("%s: %v", c.line, err)
	}
	if c.as != "" {
		r.Header.Set("Authorization", c.as)
	}
	if c.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(c.header); i += 2 {
		r.Header.Set(c.header[i], c.header[i+1])
	}
	response, err := f.send(r)
	if err != nil {
		t.Fatalf("%s: %v", c.line, err)
	}
	a := testResponse{response, read(t, response)}
	checkResponse(t, c.line, a)
	return a
}

// send sends a request over the network, or to the handler if the server does not listen.
func (f *testServer) send(r *http.Request) (*http.Response, error) {
	if f.client != nil {
		return f.client.Do(r)
	}
	if f.url != "" {
		return client.Do(r)
	}
	r.RemoteAddr = "127.0.0.1:1"
	return f.handle(r), nil
}

// handle passes a request to the handler, as if it came from its RemoteAddr.
func (f *testServer) handle(r *http.Request) *http.Response {
	r.RequestURI = r.URL.RequestURI()
	w := httptest.NewRecorder()
	f.server.Handler().ServeHTTP(w, r)
	response := w.Result()
	response.Request = r
	for name, values := range response.Header { // as net/http does when it reads a response
		delete(response.Header, name)
		response.Header[http.CanonicalHeaderKey(name)] = values
	}
	return response
}

// checkResponse checks what every response must have.
func checkResponse(t testing.TB, line string, a testResponse) {
	t.Helper()
	id := a.Header.Get("X-Request-Id")
	if id == "" {
		t.Errorf("%s: no X-Request-Id", line)
	}
	isDescribed(t, line, a)
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
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Errorf("%s: problem: %v", line, err)
	}
	if p.Type == "" || p.Title == "" || p.Detail == "" || p.Code == "" || p.Status != a.StatusCode || p.RequestID != id {
		t.Errorf("%s: incomplete problem: %s", line, a.body)
	}
	if strings.Contains(a.body, "SELECT") || strings.Contains(a.body, "sqlite") || strings.Contains(a.body, "goroutine") {
		t.Errorf("%s: the problem shows internal details: %s", line, a.body)
	}
}

// want fails the test unless the response has the status and the code. An empty code means any.
func (a testResponse) want(t testing.TB, status int, code string) testResponse {
	t.Helper()
	if a.StatusCode != status || code != "" && a.field("code") != code {
		t.Errorf("%s %s: status %d, want %d %s: %s", a.Request.Method, a.Request.URL.Path, a.StatusCode, status, code, a.body)
	}
	return a
}

func bearer(c access.Credential) string { return "Bearer " + c.Reveal() }
func apiKey(c access.Credential) string { return "ApiKey " + c.Reveal() }

// operator is the Authorization header of the first operator.
const operator = "Bearer " + storagetest.OperatorToken

// plan creates a plan.
func (f *testServer) plan(t testing.TB, name string, apiKeys, webhooks bool, limit string) {
	t.Helper()
	body, _ := json.Marshal(map[string]any{
		"name": name, "api_keys": apiKeys, "webhooks": webhooks, "api_rate_limit_per_minute": json.RawMessage(limit),
	})
	f.do(t, call{"POST /api/v1/plans/", operator, string(body), nil}).want(t, http.StatusCreated, "")
}

// move gives an organization another plan.
func (f *testServer) move(t testing.TB, organization, plan string) {
	t.Helper()
	f.do(t, call{"PATCH /api/v1/organizations/" + organization + "/", operator, `{"plan":"` + plan + `"}`, nil}).want(t, http.StatusOK, "")
}

// read reads a whole body and closes it.
func read(t testing.TB, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return string(b)
}
