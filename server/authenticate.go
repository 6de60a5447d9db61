package server

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// principalStore is what authentication asks of the store.
type principalStore interface {
	// PrincipalByKey returns who a key stands for, or Unauthenticated: unknown, revoked, expired, or its creator may
	// not act. The plan is not looked at.
	PrincipalByKey(ctx context.Context, digest access.Digest) (access.Principal, error)
	// PrincipalByToken is the same for an access token.
	PrincipalByToken(ctx context.Context, digest access.Digest) (access.Principal, error)
	// PrincipalOfSystem returns the built-in operator.
	PrincipalOfSystem(ctx context.Context) (access.Principal, error)
	// PrincipalBySession is the same for a session of the console.
	PrincipalBySession(ctx context.Context, digest access.Digest) (access.Principal, error)
	// PrincipalByIdentity is the same for whom an issuer vouches for. named is the organization to act in, where neither
	// the issuer nor the memberships of the user say it: NotFound where it is none of them, Malformed where it is empty.
	PrincipalByIdentity(ctx context.Context, i access.Identity, named string) (access.Principal, error)
	// OrganizationByID returns an organization, or NotFound.
	OrganizationByID(ctx context.Context, id string) (access.Organization, error)
	// Used notes that a credential was used. It does not block.
	Used(p access.Principal)
}

// authenticate finds out who asks, and whether they may ask anything at all.
func (s *Server) authenticate(c *call) error {
	if s.isOperators(c) {
		return s.authenticateLocal(c)
	}
	credential, by, err := s.credential(c)
	return s.admit(c, credential, by, err)
}

// admit makes the checks of a credential that has been read, up to its window; unread is why it could not be.
func (s *Server) admit(c *call, credential access.Credential, by means, unread error) error {
	if isGuess(unread) {
		return s.guessed(c, unread)
	}
	if unread != nil {
		return unread
	}
	if err := s.identify(c, credential, by); err != nil {
		return err
	}
	if by != byKey {
		return s.pace(c) // plan and window are for keys
	}
	err := s.judge(c.request.Context(), &c.trial, access.CheckRateLimit)
	c.showWindow()
	return err
}

// isOperators reports whether a request is of somebody who connected to the local socket, and so can read and write the
// file too. A credential that is sent counts as everywhere else, an empty one included: in a script that wanted to act as
// somebody, it is a variable without a value. What a browser asks, or a proxy passes on that was pointed to the socket, is
// some stranger's.
func (s *Server) isOperators(c *call) bool {
	return c.local && len(c.request.Header["Authorization"]) == 0 && len(s.sessionCookies(c)) == 0 &&
		!isRelayed(c.request) && len(c.request.Header["Origin"]) == 0 && len(c.request.Header["Sec-Fetch-Site"]) == 0
}

// authenticateLocal has a request act as the built-in operator.
func (s *Server) authenticateLocal(c *call) error {
	p, err := s.store.PrincipalOfSystem(c.request.Context())
	if err != nil {
		return unreadable(err)
	}
	c.principal, c.authenticated = p, true
	s.store.Used(p)
	return nil
}

// guessed answers a credential that was refused unseen.
func (s *Server) guessed(c *call, err error) error {
	if wait, blocked := s.throttle.blocked(c.client, access.Digest{}); blocked {
		return tooManyFailures(c, wait)
	}
	s.throttle.failed(c.client, access.Digest{})
	return err
}

// isGuess reports whether err refuses a credential that was shown; a request without one tries nothing.
func isGuess(err error) bool {
	return fault.KindOf(err) == fault.Unauthenticated && !errors.Is(err, errNoCredential)
}

// The codes of refusals that stand elsewhere too.
const (
	codeDenied      = "permission_denied"
	codePlan        = "plan_capability_required"
	codeRateLimited = "rate_limited"
)

// codeUnknown is the code for every credential that was never given out, be it malformed or unknown, a key or a token.
const codeUnknown = "invalid_key"

var (
	errNoCredential = fault.New(fault.Unauthenticated, "missing_credential",
		"Send an API key as \"Authorization: ApiKey svc_…\" or an access token as \"Authorization: Bearer kat_…\".")
	errKey   = fault.New(fault.Unauthenticated, codeUnknown, "This is not an API key that is known here.")
	errToken = fault.New(fault.Unauthenticated, codeUnknown, "This is not an access token that is known here.")
	errPlan  = fault.New(fault.Forbidden, codePlan, "The organization's plan does not include API keys; an operator can change the plan.")
	errTwo   = fault.New(fault.Malformed, "multiple_credentials", "Send one credential, in one Authorization header or in the cookie of a session.")
)

func wrongScheme(hint string) error {
	return fault.New(fault.Unauthenticated, "wrong_scheme", "%s", hint)
}

// credential reads the one credential of a request, without asking the store. Errors: Malformed where there are two,
// Unauthenticated where there is none or it was never given out, and as of cookie.
func (s *Server) credential(c *call) (found access.Credential, by means, err error) {
	cookies := s.sessionCookies(c)
	scheme, raw, err := authorization(c.request.Header)
	switch {
	case errors.Is(err, errNoCredential):
		found, err = s.cookie(c, cookies)
		return found, bySession, err
	case err != nil:
		return found, 0, err
	case len(cookies) > 0:
		return found, 0, errTwo
	case strings.EqualFold(scheme, "ApiKey"):
		found, err = apiKey(raw)
		return found, byKey, err
	case strings.EqualFold(scheme, "Bearer") && s.issuer != nil && access.LooksForeign(raw):
		found, err = foreign(raw)
		return found, byIssuer, err
	case strings.EqualFold(scheme, "Bearer"):
		found, err = s.bearer(raw)
		return found, byToken, err
	}
	return found, 0, wrongScheme("Only the schemes ApiKey and Bearer are known: " + errNoCredential.Message)
}

// authorization splits the one Authorization header of a request.
func authorization(h http.Header) (scheme, raw string, err error) {
	values := h["Authorization"]
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", "", errNoCredential
	case len(values) > 1 || isList(values[0]):
		return "", "", errTwo
	}
	scheme, raw, _ = strings.Cut(values[0], " ")
	return scheme, strings.TrimLeft(raw, " "), nil // 1*SP, RFC 9110 section 11.4
}

// apiKey reads a key of any prefix, so that keys outlive a change of the setting.
func apiKey(raw string) (access.Credential, error) {
	if strings.HasPrefix(raw, access.TokenPrefix+"_") {
		return access.Credential{}, wrongScheme("This is an access token: send it as \"Authorization: Bearer kat_…\".")
	}
	c, ok := access.Parse(raw)
	if !ok {
		return c, errKey
	}
	return c, nil
}

// bearer reads an access token. One that looks minted must have a right checksum; any other may be the token that the
// operator chose for the first start.
func (s *Server) bearer(raw string) (access.Credential, error) {
	c, minted := access.Parse(raw)
	prefix, looksMinted := access.LooksMinted(raw)
	switch {
	case strings.HasPrefix(raw, s.prefix), minted && c.Prefix() != access.TokenPrefix:
		return c, wrongScheme("This is an API key: send it as \"Authorization: ApiKey " + s.prefix + "…\".")
	case minted:
		return c, nil
	case looksMinted && prefix == access.TokenPrefix:
		return c, errToken
	}
	c, ok := access.Opaque(raw)
	if !ok {
		return c, errToken
	}
	return c, nil
}

// isList reports whether an Authorization header lists several credentials, as a proxy makes of several headers. A comma
// alone is no list: it may stand in the token that an operator chose, in which no space can, and other schemes have
// parameters with commas between them.
func isList(value string) bool {
	if !strings.Contains(value, ",") {
		return false
	}
	scheme, raw, _ := strings.Cut(value, " ")
	isBearer := strings.EqualFold(scheme, "Bearer")
	if strings.EqualFold(scheme, "ApiKey") || isBearer && strings.ContainsAny(strings.TrimLeft(raw, " "), " \t") {
		return true
	}
	for part := range strings.SplitSeq(raw, ",") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		if _, minted := access.Parse(words[0]); minted {
			return true
		}
		if !isBearer && (strings.EqualFold(words[0], "ApiKey") || strings.EqualFold(words[0], "Bearer")) {
			return true
		}
	}
	return false
}
