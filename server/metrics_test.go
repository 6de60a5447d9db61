package server_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/metrics"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// measured sets real metrics, served at /metrics.
func measured(o *server.Options) {
	m := metrics.New()
	m.Read(o.Store.(*storage.Store))
	o.Observe, o.Metrics, o.SignIn = m.Observe, m, new(login)
}

// asked makes a request to the handler as if it came from a peer, with headers as name, value, name, value.
func (f *testServer) asked(peer, line string, header ...string) *httptest.ResponseRecorder {
	method, path, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Method, r.URL.Path, r.RemoteAddr, r.Host = method, path, peer, "localhost" // whatever they are
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	f.Server.ServeHTTP(w, r)
	return w
}

// counted scrapes the metrics and returns the series of the server by name and labels, without the buckets of histograms.
func (f *testServer) counted(t *testing.T) map[string]string {
	t.Helper()
	w := f.asked("127.0.0.1:1", "GET /metrics")
	if w.Code != http.StatusOK {
		t.Fatalf("scrape: status %d %s", w.Code, w.Body)
	}
	series := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && (strings.HasPrefix(name, "keyhook_http_") || strings.HasPrefix(name, "keyhook_auth")) && !strings.Contains(name, "_bucket{") {
			series[name] = value
		}
	}
	return series
}

func TestMetricsAccess(t *testing.T) {
	t.Parallel()
	f := build(t, measured, func(o *server.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	_, owner := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	principal := storagetest.Operator(t, f.Store)
	_, reads := storagetest.Key(t, f.Store, principal, access.PlatformRead)
	_, other := storagetest.Key(t, f.Store, principal, access.EventsRead)
	const here, there, v6, mapped = "127.0.0.1:999", "203.0.113.9:999", "[::1]:999", "[::ffff:127.0.0.1]:999"

	for name, tt := range map[string]struct {
		peer   string
		header []string
		status int
		code   string
	}{
		"loopback needs no credential":                              {here, nil, 200, ""},
		"loopback over IPv6 needs no credential":                    {v6, nil, 200, ""},
		"loopback in its mapped form needs no credential":           {mapped, nil, 200, ""},
		"a loopback address as the host needs no credential":        {here, []string{"Host", "127.1.2.3:8080"}, 200, ""},
		"an IPv6 loopback address as the host needs no credential":  {v6, []string{"Host", "[::1]:8080"}, 200, ""},
		"the same without a port needs no credential":               {v6, []string{"Host", "[::1]"}, 200, ""},
		"localhost with a port needs no credential":                 {here, []string{"Host", "LOCALHOST:80"}, 200, ""},
		"another host needs a credential":                           {here, []string{"Host", "evil.example:8080"}, 401, "missing_credential"},
		"a host that begins with localhost needs a credential":      {here, []string{"Host", "localhost.evil.example"}, 401, "missing_credential"},
		"a host that begins with an address needs a credential":     {here, []string{"Host", "127.0.0.1.evil.example"}, 401, "missing_credential"},
		"no host needs a credential":                                {here, []string{"Host", ""}, 401, "missing_credential"},
		"a page of another site needs a credential":                 {here, []string{"Origin", "https://evil.example"}, 401, "missing_credential"},
		"an operator may read them under another host":              {here, []string{"Host", "keys.example.com", "Authorization", servertest.Operator}, 200, ""},
		"another address needs a credential":                        {there, nil, 401, "missing_credential"},
		"a client without an address needs a credential":            {"@", nil, 401, "missing_credential"},
		"an operator may read them":                                 {there, []string{"Authorization", servertest.Operator}, 200, ""},
		"a key with platform:read may":                              {there, []string{"Authorization", servertest.APIKey(reads)}, 200, ""},
		"a key without platform:read is refused":                    {there, []string{"Authorization", servertest.APIKey(other)}, 403, "permission_denied"},
		"an owner may not: it is not their instance":                {there, []string{"Authorization", servertest.Bearer(owner)}, 403, "permission_denied"},
		"a wrong key is refused":                                    {there, []string{"Authorization", "ApiKey svc_x"}, 401, "invalid_key"},
		"a trusted proxy on this machine asks for others":           {here, []string{"X-Forwarded-For", "203.0.113.9"}, 401, "missing_credential"},
		"a trusted proxy asks for others even if it names loopback": {here, []string{"X-Forwarded-For", "127.0.0.1"}, 401, "missing_credential"},
		"a trusted proxy asks for others even if it names nobody":   {here, []string{"X-Forwarded-For", ""}, 401, "missing_credential"},
		"another proxy on this machine asks for others too":         {v6, []string{"X-Forwarded-For", "203.0.113.9"}, 401, "missing_credential"},
		"a proxy with the header of RFC 7239 asks for others":       {here, []string{"Forwarded", "for=203.0.113.9"}, 401, "missing_credential"},
		"a proxy that sends only the host asks for others":          {here, []string{"X-Forwarded-Host", "keys.example.com"}, 401, "missing_credential"},
		"a proxy with a header of its own asks for others":          {here, []string{"X-Real-IP", "203.0.113.9"}, 401, "missing_credential"},
		"a client cannot claim to come from loopback":               {there, []string{"X-Forwarded-For", "127.0.0.1"}, 401, "missing_credential"},
		"an operator may read them through a proxy":                 {here, []string{"X-Forwarded-For", "203.0.113.9", "Authorization", servertest.Operator}, 200, ""},
		"a credential from loopback is not read":                    {here, []string{"Authorization", "ApiKey svc_x"}, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/metrics", "/metrics/"} {
				w := f.asked(tt.peer, "GET "+path, tt.header...)
				var p struct{ Code string }
				_ = json.Unmarshal(w.Body.Bytes(), &p)
				if w.Code != tt.status || p.Code != tt.code || strings.Contains(w.Body.String(), "keyhook_lanes") != (tt.status == 200) {
					t.Errorf("%s: status %d %.200s", path, w.Code, w.Body)
				}
			}
		})
	}

	t.Run("only GET and HEAD are served", func(t *testing.T) {
		if w := f.asked(here, "POST /metrics"); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("status %d, Allow %q", w.Code, w.Header().Get("Allow"))
		}
	})
	t.Run("the path is unknown if the metrics have a listener of their own, to an operator too", func(t *testing.T) {
		bare := build(t)
		for _, header := range [][]string{nil, {"Authorization", servertest.Operator}} {
			if w := bare.asked(here, "GET /metrics", header...); w.Code != 404 {
				t.Errorf("status %d", w.Code)
			}
		}
	})
}

func TestMetricsOfRequests(t *testing.T) {
	t.Parallel()

	t.Run("are counted by route, method and status, and refusals by their code", func(t *testing.T) {
		t.Parallel()
		f := build(t, measured)
		owner, key := f.key(t, "small", "2")
		f.Move(t, owner.Organization.ID, "small")
		before := f.counted(t)
		const peer = "203.0.113.9:999"
		for _, line := range []string{"GET /api/v1/whoami/", "GET /api/v1/whoami", "HEAD /api/v1/whoami", "GET /nothing"} {
			f.asked(peer, line, "Authorization", servertest.APIKey(key)) // the last two are over the limit
		}
		f.asked(peer, "GET /api/v1/api-keys/key_01h455vb4pex5vsknk084sn02q/")
		f.asked(peer, "DELETE /api/v1/api-keys/", "Authorization", servertest.Operator)
		for range 30 {
			f.asked("203.0.113.10:1", "POST /api/v1/events/", "Authorization", "ApiKey svc_x")
		}
		got := map[string]string{}
		for name, value := range f.counted(t) {
			if value != before[name] && !strings.Contains(name, "seconds_sum") {
				got[name] = value
			}
		}
		want := map[string]string{
			`keyhook_http_requests_total{method="GET",route="/api/v1/whoami/",status="200"}`:           "2",
			`keyhook_http_requests_total{method="HEAD",route="/api/v1/whoami/",status="429"}`:          "1",
			`keyhook_http_requests_total{method="GET",route="none",status="429"}`:                      "1",
			`keyhook_http_requests_total{method="GET",route="/api/v1/api-keys/{id}/",status="401"}`:    "1",
			`keyhook_http_requests_total{method="DELETE",route="none",status="405"}`:                   "1",
			`keyhook_http_requests_total{method="POST",route="/api/v1/events/",status="401"}`:          "20",
			`keyhook_http_requests_total{method="POST",route="/api/v1/events/",status="429"}`:          "10",
			`keyhook_http_requests_total{method="GET",route="/metrics/",status="200"}`:                 "1",
			`keyhook_http_request_duration_seconds_count{method="GET",route="/api/v1/whoami/"}`:        "2",
			`keyhook_http_request_duration_seconds_count{method="HEAD",route="/api/v1/whoami/"}`:       "1",
			`keyhook_http_request_duration_seconds_count{method="GET",route="none"}`:                   "1",
			`keyhook_http_request_duration_seconds_count{method="GET",route="/api/v1/api-keys/{id}/"}`: "1",
			`keyhook_http_request_duration_seconds_count{method="DELETE",route="none"}`:                "1",
			`keyhook_http_request_duration_seconds_count{method="POST",route="/api/v1/events/"}`:       "30",
			`keyhook_http_request_duration_seconds_count{method="GET",route="/metrics/"}`:              "1",
			`keyhook_http_rate_limited_total`:                                                          "2",
			`keyhook_http_throttled_total`:                                                             "10",
			`keyhook_authentication_failures_total{code="missing_credential"}`:                         "1",
			`keyhook_authentication_failures_total{code="invalid_key"}`:                                "20",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("series that have changed (-want +got):\n%s", d)
		}
	})

	t.Run("make few series, whatever callers send", func(t *testing.T) {
		t.Parallel()
		f := build(t, measured)
		for range 1000 {
			word := strconv.FormatUint(rand.Uint64(), 36)
			for _, line := range []string{
				"GET /" + word, word + " /healthz", word + " /" + word, "PATCH /api/v1/" + word, "GET /api/v1/plans/" + word + "/",
			} {
				f.asked("203.0.113.9:999", line, "Authorization", "ApiKey svc_"+word, "X-Organization-Id", word)
			}
		}
		got := f.counted(t)
		if len(got) > 30 {
			t.Errorf("%d series: %v", len(got), got)
		}
		if n := got[`keyhook_http_request_duration_seconds_count{method="other",route="none"}`]; n != "2000" {
			t.Errorf("%s requests had a method that there is not", n)
		}
	})
}
