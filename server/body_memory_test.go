package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// budget sets the memory for request bodies.
func budget(n int64) func(*server.Options) {
	return func(o *server.Options) { o.BodyMemory = n }
}

// event is the body of a request that publishes an event with this many bytes of data.
func event(size int) string { return `{"type":"a.b","data":{"x":"` + strings.Repeat("x", size) + `"}}` }

// begin sends the header of a request to publish, with a Content-Length, and a part of the body.
func (f *testServer) begin(t *testing.T, as, path string, length int, part string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, as, length, part)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// reserved returns how many bytes all requests have.
func (f *testServer) reserved() int64 {
	organizations, anonymous := f.Server.Reserved()
	return organizations + anonymous
}

// waitReserved waits until requests have reserved that much of the budget.
func (f *testServer) waitReserved(t *testing.T, least int64) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); f.reserved() < least; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are reserved, want %d", f.reserved(), least)
		}
	}
}

// waitReleased waits until no request has memory of the budget. A response arrives a moment before its memory is released.
func (f *testServer) waitReleased(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); f.reserved() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are still reserved", f.reserved())
		}
	}
}

// atEnd is an empty reader that calls itself when it is read.
type atEnd func()

func (f atEnd) Read([]byte) (int, error) { f(); return 0, io.EOF }

// until repeats a request until the response has that status.
func (f *testServer) until(t *testing.T, c servertest.Call, status int) servertest.Response {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got := f.Call(t, c)
		if got.StatusCode == status || time.Now().After(end) {
			return got.Want(t, status, "")
		}
		runtime.GC() // frees the bodies that are no longer in use
	}
}

func TestBodyMemory(t *testing.T) {
	t.Parallel()
	const path, batch = "/api/v1/events/", "/api/v1/events/batch/"

	t.Run("is shared: an organization with too much of it is refused, and others are not", func(t *testing.T) {
		t.Parallel()
		f := start(t, budget(900<<10))
		_, acme := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
		_, other := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
		large := event(200 << 10)
		conn := f.begin(t, servertest.Bearer(acme), path, len(large), large[:len(large)-1])
		f.waitReserved(t, 400<<10)
		got := f.Do(t, "POST "+path, servertest.Bearer(acme), large).Want(t, 503, "body_memory_exhausted")
		if after := got.Header.Get("Retry-After"); after != "2" {
			t.Errorf("Retry-After %q", after)
		}
		f.Do(t, "POST "+path, servertest.Bearer(other), event(100)).Want(t, 202, "")
		f.Do(t, "POST "+path, servertest.Bearer(acme), event(100)).Want(t, 202, "")
		if _, err := io.WriteString(conn, large[len(large)-1:]); err != nil {
			t.Fatal(err)
		}
		f.until(t, servertest.NewCall("POST "+path, servertest.Bearer(acme), large), 202)
	})

	t.Run("never runs out, even if many organizations reserve what they can", func(t *testing.T) {
		t.Parallel()
		f := start(t, budget(4<<20))
		for i := range 6 {
			_, token := storagetest.Organization(t, f.Store, fmt.Sprintf("taker%d", i), "growth", access.RoleOwner)
			for range 10 {
				f.begin(t, servertest.Bearer(token), path, 250<<10, event(240 << 10)[:240<<10])
			}
		}
		_, other := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
		for range 20 {
			f.Do(t, "POST "+path, servertest.Bearer(other), event(100)).Want(t, 202, "")
		}
	})

	t.Run("is reserved for the bytes that arrive, not for the Content-Length", func(t *testing.T) {
		t.Parallel()
		f := start(t)
		for range 20 {
			f.begin(t, servertest.Operator, batch, 16<<20, "{")
		}
		f.waitReserved(t, 20*32<<10)
		f.Do(t, "POST "+batch, servertest.Operator, `{"events":[`+strings.TrimSuffix(strings.Repeat(event(200<<10)+",", 20), ",")+`]}`).Want(t, 202, "")
	})

	t.Run("has room for the largest body while others use it", func(t *testing.T) {
		t.Parallel()
		f := start(t, budget(exchange.SmallestMemory))
		f.begin(t, servertest.Operator, batch, 16<<20, "{")
		body := `{"events":[` + event(100) + strings.Repeat(" ", 16<<20-120-len(event(100))) + `]}`
		f.Do(t, "POST "+batch, servertest.Operator, body).Want(t, 202, "")
	})

	t.Run("is reserved for large responses to slow readers too", func(t *testing.T) {
		t.Parallel()
		f := start(t, budget(512<<10))
		id := func() string {
			list := f.List(t, servertest.Operator, path)
			return list.Data[0]["id"].(string)
		}
		f.Do(t, "POST "+path, servertest.Operator, event(150<<10)).Want(t, 202, "")
		f.Do(t, "GET "+path+id()+"/", servertest.Operator, "").Want(t, 200, "")
		f.waitReleased(t)
		conn := f.begin(t, servertest.Operator, path, 100<<10, event(98 << 10)[:98<<10])
		f.waitReserved(t, 190<<10)
		f.Do(t, "GET "+path+id()+"/", servertest.Operator, "").Want(t, 503, "body_memory_exhausted")
		f.List(t, servertest.Operator, path) // small ones pass
		conn.Close()
		f.until(t, servertest.NewCall("GET "+path+id()+"/", servertest.Operator, ""), 200)
	})

	t.Run("does not refuse a write that is done, although its response is large", func(t *testing.T) {
		t.Parallel()
		f := start(t, budget(512<<10))
		f.begin(t, servertest.Operator, path, 84<<10, event(82 << 10)[:82<<10])
		f.waitReserved(t, 160<<10)
		large := `{"description":"` + strings.Repeat("x", 40<<10) + `"}`
		f.Do(t, "PUT /api/v1/event-types/a.b/", servertest.Operator, `{"description":"x","example":`+large+`,"schema":`+large+`}`).Want(t, 201, "")
	})

	t.Run("is released if the caller disconnects before the writer has read the body", func(t *testing.T) {
		t.Parallel()
		f := build(t, budget(900<<10))
		gone, leave := context.WithCancel(t.Context())
		body := io.MultiReader(strings.NewReader(event(200<<10)), atEnd(leave))
		r := httptest.NewRequestWithContext(gone, http.MethodPost, path, body)
		r.Header.Set("Authorization", servertest.Operator)
		r.Header.Set("Content-Type", "application/json")
		if status := f.Handle(r).StatusCode; status != http.StatusServiceUnavailable {
			t.Fatalf("status %d", status)
		}
		f.until(t, servertest.NewCall("POST "+path, servertest.Operator, event(200<<10)), 202)
	})

	t.Run("is reserved by each request over HTTP/2, because one connection makes many", func(t *testing.T) {
		t.Parallel()
		f := build(t, budget(64<<10))
		ask := func(major int) int {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/whoami/", nil)
			r.Header.Set("Authorization", servertest.Operator)
			r.ProtoMajor = major
			return f.Handle(r).StatusCode
		}
		if one, two := ask(1), ask(2); one != 200 || two != 200 {
			t.Errorf("statuses %d and %d", one, two)
		}
		f = build(t, budget(40<<10))
		if one, two := ask(1), ask(2); one != 200 || two != 503 {
			t.Errorf("statuses %d and %d when the memory is used up", one, two)
		}
	})
}

func TestManyFields(t *testing.T) {
	t.Parallel()
	f := start(t)
	members := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"f%d":1`, i)
		}
		return b.String()
	}
	types := strings.TrimSuffix(strings.Repeat(`"a.b",`, 1001), ",")
	padding := strings.Repeat(" ", 300<<10) // makes a body so large that only events are searched for repeated names
	for name, tt := range map[string]struct {
		line, body string
		status     int
		fields     string // the first
		many       int    // fields that the response lists
	}{
		"a thousand are counted one by one": {"POST /api/v1/events/", `{"type":"a.b","data":{}` + members(998) + `}`, 422, "f0: unknown_field", 101},
		"one more is refused":               {"POST /api/v1/events/", `{"type":"a.b","data":{}` + members(999) + `}`, 422, ": too_many_fields", 1},
		"also in an event of a batch": {"POST /api/v1/events/batch/",
			`{"events":[{"type":"a.b","data":{}},{"type":"a.b","data":{}` + members(999) + `}]}`, 422, "events.1: too_many_fields", 1},
		"data may have any number":                 {"POST /api/v1/events/", `{"type":"a.b","data":{"x":1` + members(5000) + `}}`, 202, "", 0},
		"a list of strings may have a thousand":    {"POST /api/v1/webhooks/subscriptions/", `{"url":"https://example.com/","event_types":[` + types + `]}`, 422, "event_types: too_many", 1},
		"a batch may have a thousand events":       {"POST /api/v1/events/batch/", `{"events":[` + strings.TrimSuffix(strings.Repeat("1,", 1<<20), ",") + `]}`, 422, "events: out_of_range", 1},
		"a batch lists at most a hundred problems": {"POST /api/v1/events/batch/", `{"events":[` + strings.TrimSuffix(strings.Repeat(`{"type":1`+members(100)+"},", 1000), ",") + `]}`, 422, "events.0.data: missing", 101},
		"a name that repeats in an event of a large batch": {"POST /api/v1/events/batch/",
			`{"events":[{"type":"a.b","data":{}},{"type":"a.b","data":{"x":[{"y":1,"y":2}]}}]` + padding + `}`, 400, "events.1.data.x.0.y", 0},
		"a name that repeats in a large batch": {"POST /api/v1/events/batch/",
			`{"events":[],"events":[]` + padding + `}`, 400, "events", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := f.Do(t, tt.line, servertest.Operator, tt.body).Want(t, tt.status, "")
			switch fields := got.Fields(); {
			case tt.status == 400:
				if want := "The body has \"" + tt.fields + "\" twice in one object; send each name once."; got.Field("detail") != want {
					t.Errorf("detail %q, want %q", got.Field("detail"), want)
				}
			case len(fields) != tt.many || tt.many > 0 && fields[0] != tt.fields:
				t.Errorf("%d problems: %.200v", len(fields), fields)
			case tt.many == 101 && fields[100] != ": too_many_problems":
				t.Errorf("the last problem is %s", fields[100])
			}
		})
	}
}
