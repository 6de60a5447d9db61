package server_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/socket"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// startLocal starts a server that listens on a local socket only. Its client connects there.
func startLocal(t *testing.T, change ...func(*server.Options)) *testServer {
	t.Helper()
	f := build(t, change...)
	database := filepath.Join(t.TempDir(), "keyhook.db")
	l, err := net.Listen("unix", database+".sock")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- f.server.ServeLocal(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return socket.Dial(ctx, database+".sock")
	}}
	t.Cleanup(transport.CloseIdleConnections)
	f.url, f.client = "http://local", &http.Client{Transport: transport}
	return f
}

func TestLocalSocket(t *testing.T) {
	t.Parallel()
	f := startLocal(t)
	acme, token := storagetest.Organization(t, f.store, "acme", "growth", "member")
	in := []string{"X-Organization-Id", acme.Home.ID}

	t.Run("needs no credential: requests act as the built-in operator", func(t *testing.T) {
		got := f.do(t, call{"GET /api/v1/whoami/", "", "", nil}).want(t, http.StatusOK, "")
		for _, want := range []string{`"name":"system"`, `"name":"Default"`, `"platform:act_as"`, `"key":null`} {
			if !strings.Contains(got.body, want) {
				t.Errorf("no %s in %s", want, got.body)
			}
		}
		if got.Header.Get("RateLimit") != "" {
			t.Error("it is counted")
		}
	})

	t.Run("shows the settings, but not through a proxy", func(t *testing.T) {
		g := startLocal(t, func(o *server.Options) { o.Settings = map[string]string{"log.level": "debug"} })
		if got := g.do(t, call{"GET /readyz", "", "", nil}).want(t, http.StatusOK, ""); !strings.Contains(got.body, `"settings":{"log.level":"debug"}`) {
			t.Errorf("no settings in %s", got.body)
		}
		if got := g.do(t, call{"GET /readyz", "", "", []string{"X-Forwarded-For", "192.0.2.1"}}).want(t, http.StatusOK, ""); strings.Contains(got.body, "settings") {
			t.Errorf("through a proxy: %s", got.body)
		}
	})

	t.Run("acts in every organization that is named, for keys too, and the audit log names the operator", func(t *testing.T) {
		body := `{"name":"backend","scope":"events:write"}`
		created := f.do(t, call{"POST /api/v1/api-keys/", "", body, in}).want(t, http.StatusCreated, "")
		if created.field("organization_id") != acme.Home.ID || !strings.HasPrefix(created.field("key"), "svc_") {
			t.Errorf("created %s", created.body)
		}
		log := f.do(t, call{"GET /api/v1/audit-events/?type=api_key_created&actor=system", "", "", in}).want(t, http.StatusOK, "")
		for _, want := range []string{`"actor":{"type":"system","id":"usr_`, `"name":"system"}`, `"ip":null`} {
			if !strings.Contains(log.body, want) {
				t.Errorf("no %s in %s", want, log.body)
			}
		}
		f.do(t, call{"POST /api/v1/events/", "ApiKey " + created.field("key"), `{"type":"a","data":{}}`, nil}).want(t, http.StatusAccepted, "")
		f.do(t, call{"GET /api/v1/plans/", "ApiKey " + created.field("key"), "", nil}).want(t, http.StatusForbidden, "permission_denied")
		f.do(t, call{"GET /api/v1/whoami/", "", "", []string{"X-Organization-Id", "org_01h455vb4pex5vsknk084sn02q"}}).want(t, http.StatusNotFound, "not_found")
	})

	t.Run("does not allow changes to the built-in operator, or other credentials for it", func(t *testing.T) {
		var me struct{ User struct{ ID string } }
		if err := json.Unmarshal([]byte(f.do(t, call{"GET /api/v1/whoami/", "", "", nil}).body), &me); err != nil {
			t.Fatal(err)
		}
		user, member := "/api/v1/users/"+me.User.ID+"/", "/api/v1/organizations/"+acme.Home.ID+"/members/"+me.User.ID+"/"
		for line, body := range map[string]string{
			"PATCH " + user: `{"is_active":false}`, "DELETE " + user: "", "POST " + user + "access-tokens/": `{"organization_id":"` + acme.Home.ID + `"}`,
			"PUT " + member: `{"role":"owner"}`, "DELETE " + member: "",
		} {
			f.do(t, call{line, operator, body, nil}).want(t, http.StatusConflict, "built_in")
		}
	})

	t.Run("reads a credential as usual, and does not fall back if it is wrong", func(t *testing.T) {
		got := f.do(t, call{"GET /api/v1/whoami/", bearer(token), "", nil}).want(t, http.StatusOK, "")
		if !strings.Contains(got.body, acme.User.ID) {
			t.Errorf("whoami says %s", got.body)
		}
		f.do(t, call{"GET /api/v1/plans/", bearer(token), "", nil}).want(t, http.StatusForbidden, "permission_denied")
		f.do(t, call{"GET /api/v1/whoami/", "Bearer ", "", nil}).want(t, http.StatusUnauthorized, "invalid_key")
		f.do(t, call{"GET /api/v1/whoami/", "", "", []string{"Authorization", ""}}).want(t, http.StatusUnauthorized, "missing_credential")
	})

	t.Run("refuses browsers and proxies without a credential", func(t *testing.T) {
		for _, header := range [][]string{
			{"X-Forwarded-For", "198.51.100.7"}, {"Forwarded", "for=198.51.100.7"}, {"Via", "1.1 proxy"}, {"X-Real-Ip", "198.51.100.7"},
			{"Origin", "http://console.example"}, {"Sec-Fetch-Site", "none"},
		} {
			f.do(t, call{"GET /api/v1/whoami/", "", "", header}).want(t, http.StatusUnauthorized, "missing_credential")
			f.do(t, call{"GET /api/v1/whoami/", bearer(token), "", header}).want(t, http.StatusOK, "")
		}
	})

	t.Run("reads the cookie of a session as usual", func(t *testing.T) {
		f.do(t, call{"GET /api/v1/whoami/", "", "", []string{"Cookie", "keyhook_session=gone"}}).want(t, http.StatusUnauthorized, "invalid_session")
		created := f.do(t, call{"POST /api/v1/session/", "", `{"token":"` + token.Reveal() + `"}`, nil}).want(t, http.StatusCreated, "")
		cookie, _, _ := strings.Cut(created.Header.Get("Set-Cookie"), ";")
		got := f.do(t, call{"GET /api/v1/whoami/", "", "", []string{"Cookie", cookie}}).want(t, http.StatusOK, "")
		if !strings.Contains(got.body, acme.User.ID) {
			t.Errorf("whoami says %s", got.body)
		}
	})

	t.Run("throttles no failures", func(t *testing.T) {
		for range 30 {
			f.do(t, call{"GET /api/v1/whoami/", "Bearer wrong-wrong-wrong-wrong", "", nil}).want(t, http.StatusUnauthorized, "invalid_key")
		}
	})

	t.Run("is named as the client in the log of requests", func(t *testing.T) {
		if log := f.log.String(); !strings.Contains(log, `"client":"socket"`) || strings.Contains(log, "invalid IP") {
			t.Errorf("the log says %s", log)
		}
	})

	t.Run("does not change requests to the main listener", func(t *testing.T) {
		g := start(t)
		g.do(t, call{"GET /api/v1/whoami/", "", "", nil}).want(t, http.StatusUnauthorized, "missing_credential")
	})

	t.Run("is served without TLS while the main listener has TLS", func(t *testing.T) {
		t.Parallel()
		g := startLocal(t, func(o *server.Options) { o.TLS = &tls.Config{} })
		g.do(t, call{"GET /api/v1/whoami/", "", "", nil}).want(t, http.StatusOK, "")
	})
}
