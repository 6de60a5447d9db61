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
	"github.com/keyhook/keyhook/server/servertest"
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
	go func() { served <- f.Server.ServeLocal(ctx, l) }()
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
	f.URL, f.Client = "http://local", &http.Client{Transport: transport}
	return f
}

func TestLocalSocket(t *testing.T) {
	t.Parallel()
	f := startLocal(t)
	acme, token := storagetest.Organization(t, f.Store, "acme", "growth", "member")
	in := []string{"X-Organization-Id", acme.Home.ID}

	t.Run("needs no credential: requests act as the built-in operator", func(t *testing.T) {
		got := f.Do(t, "GET /api/v1/whoami/", "", "").Want(t, http.StatusOK, "")
		for _, want := range []string{`"name":"system"`, `"name":"Default"`, `"platform:act_as"`, `"key":null`} {
			if !strings.Contains(got.Text, want) {
				t.Errorf("no %s in %s", want, got.Text)
			}
		}
		if got.Header.Get("RateLimit") != "" {
			t.Error("it is counted")
		}
	})

	t.Run("shows the settings, but not through a proxy", func(t *testing.T) {
		g := startLocal(t, func(o *server.Options) { o.Settings = map[string]string{"log.level": "debug"} })
		if got := g.Do(t, "GET /readyz", "", "").Want(t, http.StatusOK, ""); !strings.Contains(got.Text, `"settings":{"log.level":"debug"}`) {
			t.Errorf("no settings in %s", got.Text)
		}
		if got := g.Do(t, "GET /readyz", "", "", "X-Forwarded-For", "192.0.2.1").Want(t, http.StatusOK, ""); strings.Contains(got.Text, "settings") {
			t.Errorf("through a proxy: %s", got.Text)
		}
	})

	t.Run("acts in every organization that is named, for keys too, and the audit log names the operator", func(t *testing.T) {
		body := `{"name":"backend","scope":"events:write"}`
		created := f.Do(t, "POST /api/v1/api-keys/", "", body, in...).Want(t, http.StatusCreated, "")
		if created.Field("organization_id") != acme.Home.ID || !strings.HasPrefix(created.Field("key"), "svc_") {
			t.Errorf("created %s", created.Text)
		}
		log := f.Do(t, "GET /api/v1/audit-events/?type=api_key_created&actor=system", "", "", in...).Want(t, http.StatusOK, "")
		for _, want := range []string{`"actor":{"type":"system","id":"usr_`, `"name":"system"}`, `"ip":null`} {
			if !strings.Contains(log.Text, want) {
				t.Errorf("no %s in %s", want, log.Text)
			}
		}
		f.Do(t, "POST /api/v1/events/", "ApiKey "+created.Field("key"), `{"type":"a","data":{}}`).Want(t, http.StatusAccepted, "")
		f.Do(t, "GET /api/v1/plans/", "ApiKey "+created.Field("key"), "").Want(t, http.StatusForbidden, "permission_denied")
		f.Do(t, "GET /api/v1/whoami/", "", "", "X-Organization-Id", "org_01h455vb4pex5vsknk084sn02q").Want(t, http.StatusNotFound, "not_found")
	})

	t.Run("does not allow changes to the built-in operator, or other credentials for it", func(t *testing.T) {
		var me struct{ User struct{ ID string } }
		if err := json.Unmarshal([]byte(f.Do(t, "GET /api/v1/whoami/", "", "").Text), &me); err != nil {
			t.Fatal(err)
		}
		user, member := "/api/v1/users/"+me.User.ID+"/", "/api/v1/organizations/"+acme.Home.ID+"/members/"+me.User.ID+"/"
		for line, body := range map[string]string{
			"PATCH " + user: `{"is_active":false}`, "DELETE " + user: "", "POST " + user + "access-tokens/": `{"organization_id":"` + acme.Home.ID + `"}`,
			"PUT " + member: `{"role":"owner"}`, "DELETE " + member: "",
		} {
			f.Do(t, line, servertest.Operator, body).Want(t, http.StatusConflict, "built_in")
		}
	})

	t.Run("reads a credential as usual, and does not fall back if it is wrong", func(t *testing.T) {
		got := f.Do(t, "GET /api/v1/whoami/", servertest.Bearer(token), "").Want(t, http.StatusOK, "")
		if !strings.Contains(got.Text, acme.User.ID) {
			t.Errorf("whoami says %s", got.Text)
		}
		f.Do(t, "GET /api/v1/plans/", servertest.Bearer(token), "").Want(t, http.StatusForbidden, "permission_denied")
		f.Do(t, "GET /api/v1/whoami/", "Bearer ", "").Want(t, http.StatusUnauthorized, "invalid_key")
		f.Do(t, "GET /api/v1/whoami/", "", "", "Authorization", "").Want(t, http.StatusUnauthorized, "missing_credential")
	})

	t.Run("refuses browsers and proxies without a credential", func(t *testing.T) {
		for _, header := range [][]string{
			{"X-Forwarded-For", "198.51.100.7"}, {"Forwarded", "for=198.51.100.7"}, {"Via", "1.1 proxy"}, {"X-Real-Ip", "198.51.100.7"},
			{"Origin", "http://console.example"}, {"Sec-Fetch-Site", "none"},
		} {
			f.Do(t, "GET /api/v1/whoami/", "", "", header...).Want(t, http.StatusUnauthorized, "missing_credential")
			f.Do(t, "GET /api/v1/whoami/", servertest.Bearer(token), "", header...).Want(t, http.StatusOK, "")
		}
	})

	t.Run("reads the cookie of a session as usual", func(t *testing.T) {
		f.Do(t, "GET /api/v1/whoami/", "", "", "Cookie", "keyhook_session=gone").Want(t, http.StatusUnauthorized, "invalid_session")
		created := f.Do(t, "POST /api/v1/session/", "", `{"token":"`+token.Reveal()+`"}`).Want(t, http.StatusCreated, "")
		cookie, _, _ := strings.Cut(created.Header.Get("Set-Cookie"), ";")
		got := f.Do(t, "GET /api/v1/whoami/", "", "", "Cookie", cookie).Want(t, http.StatusOK, "")
		if !strings.Contains(got.Text, acme.User.ID) {
			t.Errorf("whoami says %s", got.Text)
		}
	})

	t.Run("throttles no failures", func(t *testing.T) {
		for range 30 {
			f.Do(t, "GET /api/v1/whoami/", "Bearer wrong-wrong-wrong-wrong", "").Want(t, http.StatusUnauthorized, "invalid_key")
		}
	})

	t.Run("is named as the client in the log of requests", func(t *testing.T) {
		if log := f.Log.String(); !strings.Contains(log, `"client":"socket"`) || strings.Contains(log, "invalid IP") {
			t.Errorf("the log says %s", log)
		}
	})

	t.Run("does not change requests to the main listener", func(t *testing.T) {
		g := start(t)
		g.Do(t, "GET /api/v1/whoami/", "", "").Want(t, http.StatusUnauthorized, "missing_credential")
	})

	t.Run("is served without TLS while the main listener has TLS", func(t *testing.T) {
		t.Parallel()
		g := startLocal(t, func(o *server.Options) { o.TLS = &tls.Config{} })
		g.Do(t, "GET /api/v1/whoami/", "", "").Want(t, http.StatusOK, "")
	})
}
