package server

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
)

// forwardAuthPath begins the paths of forward authentication. At /api/v1/authz/{dialect}/ a proxy asks whether the API key of
// a request is valid, and at /api/v1/authz/{dialect}/{permission}/ whether the key has the permission too. A proxy uses the
// method of the proxied request, so every method is served.
const forwardAuthPath = "/api/v1/authz/"

// The dialects. Caddy, Traefik and HAProxy speak forward: they pass on every refusal unchanged. Envoy appends the path of
// the proxied request. nginx treats every status except 2xx, 401 and 403 as a failure of Keyhook.
const (
	forwardDialect = "forward"
	nginxDialect   = "nginx"
	envoyDialect   = "envoy"
)

// noPermission stands in a path instead of the permissions, if none is needed and another path follows.
const noPermission = "-"

// parseForwardAuth reads the dialect and the needed permissions from a path of forward authentication. The first segment
// after the dialect contains the permissions, joined by "+". More segments may follow only in the dialect of envoy.
//
// An empty segment is not valid: a variable of a proxy's configuration that is empty must not mean "no permission is needed".
// A word that is not a permission counts as one that no key has.
func parseForwardAuth(path string) (dialect, needed string, ok bool) {
	rest, found := strings.CutPrefix(path, forwardAuthPath)
	if !found {
		return "", "", false
	}
	dialect, rest, _ = strings.Cut(rest, "/")
	needed, appended, _ := strings.Cut(rest, "/")
	switch {
	case dialect != forwardDialect && dialect != nginxDialect && dialect != envoyDialect,
		appended != "" && dialect != envoyDialect,
		needed == "" && rest != "":
		return "", "", false
	}
	return dialect, needed, true
}

func isForwardAuth(path string) bool {
	_, _, ok := parseForwardAuth(path)
	return ok
}

func neededPermissions(needed string) access.Scope {
	if needed == "" || needed == noPermission {
		return access.Scope{}
	}
	return access.NewScope(strings.Split(needed, "+")...)
}

// authorize tells a proxy whether to let a request through. Yes is 200 with an empty body, and the owner of the key in the headers.
// No is a problem document. The API key of the proxied request is checked and counted as in a request to Keyhook. Everything else
// in the request comes from the client and is ignored: the query, the body, the organization and the identity headers.
func (h *handlers) authorize(c *call) error {
	dialect, needed, _ := parseForwardAuth(c.Request.URL.Path)
	c.dialect = dialect
	if c.Request.ContentLength != 0 && c.Request.ProtoMajor == 1 {
		// Otherwise net/http reads the body before it responds. Some proxies pass on its length and never send it.
		c.Header()["Connection"] = closing
	}
	c.run.Presented = h.reader.ReadKey(c.Request)
	c.run.Needed, c.run.Last = neededPermissions(needed), access.CheckPermission
	if err := h.admit(c); err != nil {
		return err
	}
	c.identifyKey()
	return nil
}

// Values of headers that are always the same. Nobody may change them.
var (
	closing   = []string{"close"}
	zeroBytes = []string{"0"}
)

// identifyKey allows the request and names its key, with the user and the organization. All headers are always present, so a
// proxy that copies them overwrites headers of the same names that a client sent.
func (c *call) identifyKey() {
	p := c.Principal
	c.SetHeader("X-Service-Key-Id", p.Key.ID)
	c.SetHeader("X-Service-User-Id", p.User.ID)
	c.SetHeader("X-Service-Organization-Id", p.Organization.ID)
	c.SetHeader("X-Service-Organization-External-Id", form.Or(p.Organization.ExternalID, ""))
	c.SetHeader("X-Service-Scope", p.Permissions.String())
	c.SetHeader("X-Service-Plan", p.Plan.Name)
	if c.Request.Method == http.MethodHead { // otherwise net/http sets it
		c.Header()["Content-Length"] = zeroBytes
	}
	c.WriteHeader(http.StatusOK)
}

// masked returns the status to send. nginx treats most statuses as a failure of Keyhook, so its dialect gets 403 instead, with
// the true status in a header. nginx also drops the body of a refusal, so another header has the code.
func (c *call) masked(status int, code string) int {
	if c.dialect != nginxDialect {
		return status
	}
	c.SetHeader("X-Service-Code", code)
	if status == http.StatusUnauthorized || status == http.StatusForbidden || status >= 500 {
		return status
	}
	c.SetHeader("X-Service-Status", strconv.Itoa(status))
	return http.StatusForbidden
}
