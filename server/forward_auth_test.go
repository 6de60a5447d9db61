package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
)

const gate = "/api/v1/authz/"

// identity returns the headers of a response that identify the key; absent headers are "absent".
func identity(a servertest.Response) map[string]string {
	who := map[string]string{}
	for _, name := range []string{"Key-Id", "User-Id", "Organization-Id", "Organization-External-Id", "Scope", "Plan"} {
		who[name] = "absent"
		if values := a.Header.Values("X-Service-" + name); len(values) > 0 {
			who[name] = strings.Join(values, " and ")
		}
	}
	return who
}

func TestGate(t *testing.T) {
	t.Parallel()
	f := start(t, measured)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	key, raw := storagetest.Key(t, f.Store, owner, access.EventsRead, access.EventsWrite)
	as := servertest.APIKey(raw)
	who := map[string]string{
		"Key-Id": key.ID, "User-Id": owner.User.ID, "Organization-Id": owner.Organization.ID, "Organization-External-Id": "", "Scope": "events:read events:write", "Plan": "growth",
	}
	left := 600
	passes := func(t *testing.T, c servertest.Call) servertest.Response {
		t.Helper()
		got := f.Call(t, c).Want(t, 200, "")
		left--
		if diff := cmp.Diff(who, identity(got)); diff != "" || got.Text != "" || got.Header.Get("Content-Length") != "0" || got.Header.Get("Content-Type") != "" {
			t.Errorf("%s: identity (-want +got):\n%sbody %q, headers %v", c.Line, diff, got.Text, got.Header)
		}
		checkWindow(t, got, 600, left)
		return got
	}

	t.Run("allows and identifies a valid key, whatever the method", func(t *testing.T) {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "BREW"} {
			for _, dialect := range []string{"forward", "nginx", "envoy"} {
				passes(t, servertest.NewCall(method+" "+gate+dialect+"/", as, ""))
			}
		}
	})
	t.Run("is served with and without the last slash, and checks permissions", func(t *testing.T) {
		for _, path := range []string{
			"forward", "forward/events:read", "nginx/events:read/", "forward/events:read+events:write/", "envoy/events:write+events:read",
			"forward/events%3Aread%2Bevents:write", "forward/-/", "nginx/-", "envoy/-",
		} {
			passes(t, servertest.NewCall("GET "+gate+path, as, ""))
		}
	})
	t.Run("accepts any further path in the dialect of envoy", func(t *testing.T) {
		for _, path := range []string{
			"envoy/-/v1/orders/7", "envoy/events:read/", "envoy/events:read/api/v1/whoami/", "envoy/events:read//a//b/../c/?x=%zz;&limit=9",
			"envoy/-/%2e%2e/%00/ü", "envoy/-/api/v1/authz/forward/audit:read/",
		} {
			passes(t, servertest.NewCall("POST "+gate+path, as, ""))
		}
		for _, dialect := range []string{"forward", "nginx"} {
			f.Do(t, "POST "+gate+dialect+"/-/v1/orders/7", "", "").Want(t, 404, "not_found")
		}
	})
	t.Run("ignores everything else in the request", func(t *testing.T) {
		spoofed := []string{
			"X-Service-Key-Id", "key_spoofed", "X-Service-Scope", "platform:write", "X-Service-Status", "200", "X-Organization-Id", "org_of_the_client",
			"Content-Type", "text/nonsense; charset", "Content-Encoding", "br", "X-Original-Uri", "/admin", "Cookie", "a=b; session=c", "Accept", "text/none",
		}
		passes(t, servertest.NewCall("PUT "+gate+"forward/?limit=0&permission=audit:read&dialect=nginx&%zz", as, `{"key":1}`, spoofed...))
		got := f.Do(t, "PUT "+gate+"forward/?key="+raw.Reveal(), "", `{"key":"`+raw.Reveal()+`"}`, spoofed...).Want(t, 401, "missing_credential")
		if id := identity(got); id["Key-Id"] != "absent" || id["Scope"] != "absent" {
			t.Errorf("a refusal names %v", id)
		}
	})
	t.Run("refuses a key without the permission, and counts the request", func(t *testing.T) {
		for _, path := range []string{"forward/audit:read/", "nginx/audit:read", "envoy/audit:read/x", "forward/events:read+audit:read"} {
			got := f.Do(t, "GET "+gate+path, as, "").Want(t, 403, "permission_denied")
			left--
			checkWindow(t, got, 600, left)
			if !strings.HasPrefix(got.Field("detail"), "This needs the permission audit:read. Ask an operator for a role") || got.Header.Get("X-Service-Status") != "" || identity(got)["Key-Id"] != "absent" {
				t.Errorf("%s: %v %s", path, got.Header, got.Text)
			}
		}
	})
	t.Run("refuses every key for a permission that does not exist", func(t *testing.T) {
		for _, path := range []string{
			"forward/orders:read", "nginx/events.read/", "envoy/v1/orders", "forward/events:read+",
			"forward/events:read++events:write", "forward/EVENTS:READ", "forward/events:read%20audit:read",
		} {
			f.Do(t, "GET "+gate+path, as, "").Want(t, 403, "permission_denied")
			left--
		}
	})
	t.Run("is not served at other paths, and requests there count too", func(t *testing.T) {
		for _, path := range []string{"", "caddy/", "Forward/", "forward//", "forward//x", "envoy//v1/orders", "envoy///", "/forward/"} {
			f.Do(t, "GET "+gate+path, "", "").Want(t, 404, "not_found")
			got := f.Do(t, "GET "+gate+path, as, "").Want(t, 404, "not_found")
			left--
			checkWindow(t, got, 600, left)
		}
	})
	t.Run("accepts API keys only", func(t *testing.T) {
		for _, shown := range []string{servertest.Bearer(token), servertest.Operator, "ApiKey " + token.Reveal(), "Bearer " + raw.Reveal(), "Basic YWRtaW46YWRtaW4=", "Bearer eyJhbGciOiJub25lIn0.e30."} {
			got := f.Do(t, "GET "+gate+"forward/", shown, "").Want(t, 401, "wrong_scheme")
			if !strings.Contains(got.Field("detail"), `"Authorization: ApiKey svc_…"`) {
				t.Errorf("no hint: %s", got.Text)
			}
		}
	})
	t.Run("sets all headers if the creator has lost every permission", func(t *testing.T) {
		f.Do(t, "POST /api/v1/roles/", servertest.Operator, `{"name":"nobody","permissions":[]}`).Want(t, 201, "")
		f.Do(t, "PUT /api/v1/organizations/"+owner.Organization.ID+"/members/"+owner.User.ID+"/", servertest.Operator, `{"role":"nobody"}`).Want(t, 200, "")
		who["Scope"] = ""
		passes(t, servertest.NewCall("GET "+gate+"forward/", as, ""))
	})
	t.Run("is one route in the log and in the metrics", func(t *testing.T) {
		got := f.Do(t, "BREW "+gate+"envoy/-/secret/path", as, "").Want(t, 200, "")
		entry := f.logged(t, got.Header.Get("X-Request-Id"))
		if entry["route"] != gate+"{dialect}/" || entry["method"] != "other" || entry["key"] != key.ID || entry["level"] != "INFO" {
			t.Errorf("logged %v", entry)
		}
		if strings.Contains(f.Log.String(), "secret/path") || strings.Contains(f.Log.String(), raw.Reveal()) {
			t.Error("the log shows the path of the held request, or the key")
		}
	})
}

// TestGateRefusals tests each refusal in each dialect.
func TestGateRefusals(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.Plan(t, "none", true, true, "0")
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	revoked, asRevoked := storagetest.Key(t, f.Store, owner, access.EventsRead)
	if err := f.Store.Directory.RevokeKey(t.Context(), owner.Actor("", ""), owner.Organization.RowID, revoked.ID); err != nil {
		t.Fatal(err)
	}
	_, asPowerless := storagetest.Key(t, f.Store, owner, access.EventsRead)
	limited, _ := storagetest.Organization(t, f.Store, "limited", "growth", access.RoleOwner)
	_, asLimited := storagetest.Key(t, f.Store, limited, access.EventsRead)
	f.Move(t, limited.Organization.ID, "none")
	downgraded, _ := storagetest.Organization(t, f.Store, "downgraded", "growth", access.RoleOwner)
	_, asDowngraded := storagetest.Key(t, f.Store, downgraded, access.EventsRead)
	f.Move(t, downgraded.Organization.ID, "free")
	for _, tt := range []struct {
		name, as string
		status   int
		code     string
		nginx    int
	}{
		{"no credential", "", 401, "missing_credential", 401},
		{"a malformed key", "ApiKey svc_x", 401, "invalid_key", 401},
		{"an unknown key", servertest.APIKey(access.Mint("svc")), 401, "invalid_key", 401},
		{"a revoked key", servertest.APIKey(asRevoked), 401, "key_revoked", 401},
		{"a plan without keys", servertest.APIKey(asDowngraded), 403, "plan_capability_required", 403},
		{"a window that is used up", servertest.APIKey(asLimited), 429, "rate_limited", 403},
		{"a key without the permission", servertest.APIKey(asPowerless), 403, "permission_denied", 403},
		{"two credentials", servertest.APIKey(asPowerless) + "," + servertest.APIKey(asLimited), 400, "multiple_credentials", 403},
	} {
		for _, dialect := range []string{"forward", "envoy", "nginx"} {
			t.Run(tt.name+" in the dialect "+dialect, func(t *testing.T) {
				want, reported := tt.status, ""
				if dialect == "nginx" {
					if want = tt.nginx; want != tt.status {
						reported = fmt.Sprint(tt.status)
					}
				}
				got := f.Do(t, "POST "+gate+dialect+"/audit:read", tt.as, "a body", "Content-Type", "x").Want(t, want, tt.code)
				if got.Header.Get("X-Service-Status") != reported {
					t.Errorf("X-Service-Status %q, want %q", got.Header.Get("X-Service-Status"), reported)
				}
				if code := got.Header.Get("X-Service-Code"); code != "" != (dialect == "nginx") || code != "" && code != tt.code {
					t.Errorf("X-Service-Code %q", code)
				}
				if (got.Header.Get("Retry-After") != "") != (tt.status == 429) || (got.Header.Get("RateLimit") != "") != (tt.status == 403 || tt.status == 429) {
					t.Errorf("headers %v", got.Header)
				}
				if challenged := len(got.Header.Values("WWW-Authenticate")) == 2; challenged != (want == 401) {
					t.Errorf("challenges %v", got.Header.Values("WWW-Authenticate"))
				}
			})
		}
	}
}

func TestGateFailsClosed(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"an error of the driver": errors.New("disk I/O error"),
		"a timeout":              context.DeadlineExceeded,
	} {
		f := start(t, func(o *server.Options) { o.Store = failing{o.Store, err} })
		for _, dialect := range []string{"forward", "nginx", "envoy"} {
			t.Run("when the database cannot be read: "+name+", "+dialect, func(t *testing.T) {
				got := f.Do(t, "GET "+gate+dialect+"/", servertest.APIKey(access.Mint("svc")), "").Want(t, 503, "storage_unavailable")
				if got.Header.Get("Retry-After") == "" || identity(got)["Key-Id"] != "absent" {
					t.Errorf("headers %v", got.Header)
				}
			})
		}
	}
	t.Run("when the permissions cannot be read", func(t *testing.T) {
		t.Parallel()
		f := start(t, func(o *server.Options) { o.Store = withoutPermissions{o.Store} })
		owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
		_, key := storagetest.Key(t, f.Store, owner, access.EventsRead)
		f.Do(t, "GET "+gate+"forward/no:such", servertest.APIKey(key), "").Want(t, 403, "permission_denied")
	})
}

// withoutPermissions is a store whose permissions cannot be read.
type withoutPermissions struct{ server.Store }

func (withoutPermissions) UnknownPermissions(context.Context, access.Scope) (access.Scope, error) {
	return access.Scope{}, fault.New(fault.Unavailable, "storage_unavailable", "Later.")
}

// TestGateLeavesBodies writes HTTP by hand. Proxies pass on the Content-Length of a body, or its Expect header, but not the
// body.
func TestGateLeavesBodies(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, key := storagetest.Key(t, f.Store, owner, access.EventsRead)
	for name, head := range map[string]string{
		"a length":             "Content-Length: 100000",
		"a length beyond all":  "Content-Length: 1000000000000",
		"chunks":               "Transfer-Encoding: chunked",
		"the wish to be asked": "Content-Length: 100\r\nExpect: 100-continue",
		"chunks, if asked":     "Transfer-Encoding: chunked\r\nExpect: 100-continue",
		"a length and no type": "Content-Length: 1",
		"a type and no body":   "Content-Type: application/json",
		"an unknown encoding":  "Content-Length: 5\r\nContent-Encoding: middle-out",
	} {
		for as, want := range map[string]int{servertest.APIKey(key): 200, "ApiKey svc_x": 401} {
			t.Run(fmt.Sprintf("that are announced and not sent: %s, %d", name, want), func(t *testing.T) {
				t.Parallel()
				conn, err := net.Dial("tcp", strings.TrimPrefix(f.URL, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				began := time.Now()
				_ = conn.SetDeadline(began.Add(10 * time.Second))
				fmt.Fprintf(conn, "POST %sforward/ HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n%s\r\n\r\n", gate, as, head)
				response, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatalf("after %s: %v", time.Since(began), err)
				}
				defer response.Body.Close()
				if response.StatusCode != want {
					t.Errorf("status %d, want %d", response.StatusCode, want)
				}
			})
		}
	}
}

// TestGateThrottle checks that the client is throttled, not the proxy that asks for it.
func TestGateThrottle(t *testing.T) {
	t.Parallel()
	f := build(t, func(o *server.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, key := storagetest.Key(t, f.Store, owner, access.EventsRead)
	ask := func(dialect, client, as string) (int, http.Header) {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://keyhook"+gate+dialect+"/", nil)
		r.RemoteAddr, r.Header["Authorization"], r.Header["X-Forwarded-For"] = "10.0.0.1:1", []string{as}, []string{client}
		response := f.Handle(r)
		servertest.CheckResponse(t, "GET "+r.URL.Path, servertest.Response{Response: response, Text: servertest.Read(t, response)})
		return response.StatusCode, response.Header
	}
	for range 20 {
		if status, _ := ask("forward", "198.51.100.7", "ApiKey svc_x"); status != 401 {
			t.Fatalf("status %d", status)
		}
	}
	if status, header := ask("forward", "198.51.100.7", "ApiKey svc_x"); status != 429 || header.Get("Retry-After") == "" {
		t.Errorf("throttled: status %d, %v", status, header)
	}
	if status, header := ask("nginx", "198.51.100.7", servertest.APIKey(access.Mint("svc"))); status != 403 || header.Get("X-Service-Status") != "429" || header.Get("Retry-After") == "" {
		t.Errorf("throttled, nginx: status %d, %v", status, header)
	}
	if status, _ := ask("forward", "198.51.100.8", servertest.APIKey(key)); status != 200 {
		t.Errorf("another client: status %d", status)
	}
	if status, _ := ask("forward", "198.51.100.7", servertest.APIKey(key)); status != 200 {
		t.Errorf("a valid key of the throttled client: status %d", status)
	}
}
