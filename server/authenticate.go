package server

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// authenticator reads the credential of a request and has it checked.
type authenticator struct {
	checker *checker
	cookies *cookies
	prefix  string // of API keys, with the underscore
}

// admit makes the checks of the credential that was read. Response headers say how many requests are left, and when to try
// again.
func (a *authenticator) admit(x *exchange) error {
	err := a.checker.check(x.request.Context(), &x.credentialCheck)
	x.setWindow()
	switch fault.KindOf(err) {
	case fault.Limited:
		x.set("Retry-After", strconv.FormatInt(max(1, seconds(x.retryAfter)), 10))
	case fault.Unauthenticated:
		if x.kind == sessionCredential && x.at == access.CheckLookUp {
			a.cookies.clear(x)
		}
	}
	return err
}

// read reads the credential of a request and does not ask the store. A failure to read it is for the checks to report.
func (a *authenticator) read(x *exchange) {
	x.organizations = x.request.Header[organizationHeader]
	x.address, x.throttled = x.client, true
	if a.isOperator(x) {
		x.kind, x.throttled = socketCredential, false
		return
	}
	x.credential, x.kind, x.unreadable = a.credential(x)
}

// readKey reads the credential of a request that may only have an API key, and that acts in the key's own organization.
func (a *authenticator) readKey(x *exchange) {
	x.address, x.throttled, x.kind = x.client, true, keyCredential
	scheme, raw, err := authorization(x.request.Header)
	switch {
	case err != nil:
		x.unreadable = err
	case !strings.EqualFold(scheme, "ApiKey") || strings.HasPrefix(raw, access.TokenPrefix+"_"):
		x.unreadable = wrongScheme("Only an API key is accepted here: send it as \"Authorization: ApiKey " + a.prefix + "…\".")
	default:
		x.credential, x.unreadable = parseKey(raw)
	}
}

// isOperator reports whether a request without a credential came over the local socket. Whoever can connect to the socket
// can read and write the database file too. An empty credential counts as a credential: a script that wanted to send one may
// have an empty variable. Requests of a browser, and requests that a proxy forwards to the socket, are not the operator's.
func (a *authenticator) isOperator(x *exchange) bool {
	return x.local && len(x.request.Header["Authorization"]) == 0 && len(a.cookies.of(x)) == 0 &&
		!share.IsForwarded(x.request) && len(x.request.Header["Origin"]) == 0 && len(x.request.Header["Sec-Fetch-Site"]) == 0
}

// credential reads the only credential of a request. Errors: Malformed if there are two; Unauthenticated if there is none, or
// if its form is wrong; and those of cookies.read.
func (a *authenticator) credential(x *exchange) (found access.Credential, kind credentialKind, err error) {
	sessions := a.cookies.of(x)
	scheme, raw, err := authorization(x.request.Header)
	switch {
	case errors.Is(err, errNoCredential):
		found, err = a.cookies.read(x, sessions)
		return found, sessionCredential, err
	case err != nil:
		return found, 0, err
	case len(sessions) > 0:
		return found, 0, errTwo
	case strings.EqualFold(scheme, "ApiKey"):
		found, err = parseKey(raw)
		return found, keyCredential, err
	case strings.EqualFold(scheme, "Bearer") && a.checker.issuer != nil && access.LooksForeign(raw):
		found, err = parseIssuerToken(raw)
		return found, issuerCredential, err
	case strings.EqualFold(scheme, "Bearer"):
		found, err = a.readToken(raw)
		return found, tokenCredential, err
	}
	return found, 0, wrongScheme("The scheme of the Authorization header is not supported. " + errNoCredential.Message)
}

// isGuess reports whether err refuses a credential for its form. A request without a credential guesses nothing.
func isGuess(err error) bool {
	return fault.KindOf(err) == fault.Unauthenticated && !errors.Is(err, errNoCredential)
}

// The codes of refusals that several files use.
const (
	codeDenied      = "permission_denied"
	codePlan        = "plan_capability_required"
	codeRateLimited = "rate_limited"
)

// codeUnknown is the code of every malformed or unknown credential, whether it is a key or a token.
const codeUnknown = "invalid_key"

var (
	errNoCredential = fault.New(fault.Unauthenticated, "missing_credential",
		"Send an API key as \"Authorization: ApiKey svc_…\" or an access token as \"Authorization: Bearer kat_…\".")
	errKey   = fault.New(fault.Unauthenticated, codeUnknown, "This API key is malformed or unknown; check that it was copied in full.")
	errToken = fault.New(fault.Unauthenticated, codeUnknown, "This access token is malformed or unknown; check that it was copied in full.")
	errPlan  = fault.New(fault.Forbidden, codePlan, "The organization's plan does not include API keys; ask an operator to change the plan.")
	errTwo   = fault.New(fault.Malformed, "multiple_credentials", "The request has several credentials; send one, in one Authorization header or in the session cookie.")
)

// errTooManyFailures refuses a credential without a look-up.
var errTooManyFailures = fault.New(fault.Limited, "too_many_failures", "Too many failed authentications from this address; try again later.")

func wrongScheme(hint string) error {
	return fault.New(fault.Unauthenticated, "wrong_scheme", "%s", hint)
}

// sameAsMalformed gives an unknown credential the same response as a malformed one. The message of the issuer says no more
// than ours, and it has a cause for the log.
func sameAsMalformed(err error, kind credentialKind) error {
	switch e, _ := fault.As(err); {
	case e.Code != codeUnknown:
		return err
	case kind == keyCredential:
		return errKey
	case kind == tokenCredential:
		return errToken
	case kind == sessionCredential:
		return errSession
	}
	return err
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

// parseIssuerToken reads a token of the identity provider.
func parseIssuerToken(raw string) (access.Credential, error) {
	c, ok := access.Foreign(raw)
	if !ok {
		return c, errToken
	}
	return c, nil
}

// parseKey reads a key with any prefix, so keys stay valid when the setting changes.
func parseKey(raw string) (access.Credential, error) {
	if strings.HasPrefix(raw, access.TokenPrefix+"_") {
		return access.Credential{}, wrongScheme("This is an access token: send it as \"Authorization: Bearer kat_…\".")
	}
	c, ok := access.Parse(raw)
	if !ok {
		return c, errKey
	}
	return c, nil
}

// readToken reads an access token. A token in the form that Keyhook generates must have a valid checksum. Any other text may be
// the token that the operator chose for the first start.
func (a *authenticator) readToken(raw string) (access.Credential, error) {
	c, minted := access.Parse(raw)
	prefix, looksMinted := access.LooksMinted(raw)
	switch {
	case strings.HasPrefix(raw, a.prefix), minted && c.Prefix() != access.TokenPrefix:
		return c, wrongScheme("This is an API key: send it as \"Authorization: ApiKey " + a.prefix + "…\".")
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

// isList reports whether an Authorization header lists several credentials. A proxy joins several headers into such a list. A
// comma alone is not enough: a token that an operator chose may contain one (but no space), and the parameters of other schemes
// are separated by commas.
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
