package server

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// gatePath begins what proxies ask: /api/v1/authz/{dialect}/ whether the API key of a request is good, and
// /api/v1/authz/{dialect}/{permission}/ whether it may do that. They pass on the method of the request that they hold,
// which may be any, so this stands before the router, which knows a route by its method.
const gatePath = "/api/v1/authz/"

// The dialects. forward is what Caddy, Traefik and HAProxy ask, which hand on any refusal as it is; to envoy the path of
// the request that is held is appended; nginx takes every status but 2xx, 401 and 403 for a failure of ours.
const (
	forwardDialect = "forward"
	nginxDialect   = "nginx"
	envoyDialect   = "envoy"
)

// gateRoute is what the log and those who measure call all of it.
var gateRoute = route{pattern: gatePath + "{dialect}/", access: anyone}

// noPermission stands for the permission where none is asked for and something follows.
const noPermission = "-"

// knownPermissions is what forward authentication asks of the store.
type knownPermissions interface {
	// UnknownPermissions returns the permissions of a scope that do not exist.
	UnknownPermissions(ctx context.Context, named access.Scope) (access.Scope, error)
}

// gateAt reads a path of forward authentication: the dialect, and the permissions that are asked for. The first segment
// after the dialect names these, joined by "+"; behind it something may follow in the dialect of envoy only. A segment
// that is empty is no path at all: a variable of a proxy's settings that is empty must not come to mean "nothing is asked
// for". What is no permission is asked for like one, and is what nobody holds.
func gateAt(path string) (dialect string, wanted access.Scope, ok bool) {
	rest, found := strings.CutPrefix(path, gatePath)
	if !found {
		return "", wanted, false
	}
	dialect, rest, _ = strings.Cut(rest, "/")
	asked, appended, _ := strings.Cut(rest, "/")
	switch {
	case dialect != forwardDialect && dialect != nginxDialect && dialect != envoyDialect,
		appended != "" && dialect != envoyDialect,
		asked == "" && rest != "":
		return "", wanted, false
	case asked != "" && asked != noPermission:
		wanted = access.NewScope(strings.Split(asked, "+")...)
	}
	return dialect, wanted, true
}

// gate answers a proxy that holds a request and asks whether to let it through: 200 with an empty body, and in the headers
// who it is, or a problem. The API key of that request is judged and counted as if it were one to us. Of the rest of the
// request nothing is looked at: its query, its body, the organization and the identity that it names are the client's own.
func (s *Server) gate(c *call, dialect string, wanted access.Scope) error {
	c.route, c.dialect, c.wanted = &gateRoute, dialect, wanted
	if c.request.ContentLength != 0 && c.request.ProtoMajor == 1 {
		// Else net/http would read the body, which not every proxy sends that has passed on its length, before it answers.
		c.Header()["Connection"] = closing
	}
	credential, err := s.keyAlone(c.request.Header)
	if err = s.admit(c, credential, byKey, err); err != nil {
		return err
	}
	if err = s.judge(c.request.Context(), &c.trial, access.CheckPermission); err != nil {
		return s.explained(c, err)
	}
	c.vouch()
	return nil
}

// Values of headers that are always the same. Nobody may change them.
var (
	closing   = []string{"close"}
	zeroBytes = []string{"0"}
)

// vouch answers that the request may pass, and whose it is. All of the headers are there, whatever their values, so
// that a proxy which copies them overwrites what a client has sent under their names.
func (c *call) vouch() {
	p := &c.principal
	c.set("X-Service-Key-Id", p.Key.ID)
	c.set("X-Service-User-Id", p.User.ID)
	c.set("X-Service-Organization-Id", p.Organization.ID)
	c.set("X-Service-Scope", p.Permissions.String())
	c.set("X-Service-Plan", p.Plan.Name)
	c.Header()["Content-Length"] = zeroBytes
	c.WriteHeader(http.StatusOK)
}

// keyAlone reads the API key of a request; nothing else opens a gate. Errors are those of credential.
func (s *Server) keyAlone(h http.Header) (access.Credential, error) {
	scheme, raw, err := authorization(h)
	if err != nil {
		return access.Credential{}, err
	}
	if !strings.EqualFold(scheme, "ApiKey") || strings.HasPrefix(raw, access.TokenPrefix+"_") {
		return access.Credential{}, wrongScheme("Only an API key is accepted here: send it as \"Authorization: ApiKey " + s.prefix + "…\".")
	}
	return apiKey(raw)
}

// explained adds to a refusal for want of a permission that there is no such permission: whoever set up the proxy has
// misspelt it, or has yet to add it, and no client can do anything about that.
func (s *Server) explained(c *call, err error) error {
	if c.at != access.CheckPermission {
		return err
	}
	missing := c.wanted.Minus(c.principal.Permissions)
	unknown, failed := s.permissions.UnknownPermissions(c.request.Context(), missing)
	if failed != nil || unknown.Empty() {
		return err
	}
	word := form.Printable(unknown.Keys()[0], access.MaxPermissionKey)
	return fault.New(fault.Forbidden, codeDenied, "There is no permission %q here, so no key has it: "+
		"correct the path that the proxy asks, or add it at /api/v1/permissions/.", word)
}

// masked returns the status to send in place of one that nginx would take for a failure of ours. It drops the body of a
// refusal too, so the headers say what the body does.
func (c *call) masked(status int, code string) int {
	if c.dialect != nginxDialect {
		return status
	}
	c.set("X-Service-Code", code)
	if status == http.StatusUnauthorized || status == http.StatusForbidden || status >= 500 {
		return status
	}
	c.set("X-Service-Status", strconv.Itoa(status))
	return http.StatusForbidden
}
