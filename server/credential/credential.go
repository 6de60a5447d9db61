// Package credential owns how a request presents its credential: an API key, an access token, a token of the identity provider,
// a sign-in link, or the cookie of a session. It does not decide whether the credential is valid, and it knows no store and no routes.
package credential

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// OrganizationHeader names the organization to act in, if it is not the credential's own.
const OrganizationHeader = "X-Organization-Id"

// Kind is the kind of a credential.
type Kind uint8

// The kinds. A request without a credential has kind 0, unless it came over the local socket.
const (
	Key         Kind = 1 + iota // an API key
	Token                       // an access token
	IssuerToken                 // a token of the identity provider
	Session                     // the cookie of a session
	Socket                      // none: the request came over the local socket
	Link                        // a sign-in link; only the request that starts a session presents one
	SignIn                      // an identity that the identity provider has confirmed; only the request that starts its session has one
)

// Presented is the credential that a request presents.
type Presented struct {
	Kind          Kind
	Credential    access.Credential
	Unreadable    error    // why the credential could not be read; nil if it was
	Organizations []string // that the request names; none means the credential's own
}

// Codes of refusals.
const (
	CodeUnknown = "invalid_key"        // of every malformed or unknown key and token
	CodeMissing = "missing_credential" // of a request without a credential
)

// The refusals of a credential for its form. An unknown credential gets the same refusal as a malformed one.
var (
	ErrKey     = fault.New(fault.Unauthenticated, CodeUnknown, "This API key is malformed or unknown; check that it was copied in full.")
	ErrToken   = fault.New(fault.Unauthenticated, CodeUnknown, "This access token is malformed or unknown; check that it was copied in full.")
	ErrSession = fault.New(fault.Unauthenticated, "invalid_session", "The session has ended; sign in again.")
	ErrLink    = fault.New(fault.Unauthenticated, "invalid_link", "This link was used already or has expired; get a new one from the page or the person that gave you this one.")

	errSeveral = fault.New(fault.Malformed, "multiple_credentials", "The request has several credentials; send one, in one Authorization header or in the session cookie.")
)

// wrongScheme refuses a credential that the request presents as one of another kind.
func wrongScheme(hint string) error {
	return fault.New(fault.Unauthenticated, "wrong_scheme", "%s", hint)
}

// Reader reads credentials. Use NewReader.
type Reader struct {
	keyPrefix string // with the underscore
	hasIssuer bool   // tokens of an identity provider are accepted
	cookies   *Cookies
	// The refusals of a request without a credential. They say which ones it may send.
	missing, missingKey *fault.Error
}

// NewReader returns a reader. keyPrefix is the prefix of new API keys.
func NewReader(keyPrefix string, hasIssuer bool, cookies *Cookies) *Reader {
	key := "Send an API key as \"Authorization: ApiKey " + keyPrefix + "_…\""
	refuse := func(text string) *fault.Error { return fault.New(fault.Unauthenticated, CodeMissing, "%s", text) }
	return &Reader{keyPrefix + "_", hasIssuer, cookies, refuse(key + " or an access token as \"Authorization: Bearer kat_…\"."), refuse(key + ".")}
}

// Read reads the only credential of a request. local means that the request came over the local socket.
//
// The fault in Unreadable is Malformed if there are two credentials. It is Unauthenticated if there is none, or if its form is
// wrong. It is Forbidden if a browser sent the cookie for another site.
func (d *Reader) Read(r *http.Request, local bool) Presented {
	p := Presented{Kind: Socket}
	if !local || !d.isOperator(r) {
		p = d.read(r)
	}
	p.Organizations = r.Header[OrganizationHeader]
	return p
}

// ReadKey reads the credential of a request that may only have an API key, and that acts in the key's own organization.
func (d *Reader) ReadKey(r *http.Request) Presented {
	scheme, raw, err := authorization(r.Header, d.missingKey)
	switch {
	case err != nil:
		return Presented{Kind: Key, Unreadable: err}
	case !strings.EqualFold(scheme, "ApiKey") || strings.HasPrefix(raw, access.TokenPrefix+"_"):
		return Presented{Kind: Key, Unreadable: wrongScheme("Only an API key is accepted here. " + d.missingKey.Message)}
	}
	return ParseKey(raw)
}

// isOperator reports whether a request without a credential came over the local socket. A user who can connect to the
// socket can read and write the database file too. An empty credential counts as a credential: a script that wanted to send one may
// have an empty variable. Requests of a browser, and requests that a proxy forwards to the socket, are not the operator's.
func (d *Reader) isOperator(r *http.Request) bool {
	return len(r.Header["Authorization"]) == 0 && len(d.cookies.of(r)) == 0 &&
		!share.IsForwarded(r) && len(r.Header["Origin"]) == 0 && len(r.Header["Sec-Fetch-Site"]) == 0
}

func (d *Reader) read(r *http.Request) Presented {
	sessions := d.cookies.of(r)
	scheme, raw, err := authorization(r.Header, d.missing)
	missing := errors.Is(err, d.missing)
	switch {
	case missing && len(sessions) == 1:
		return d.cookies.read(r, sessions[0])
	case missing && len(sessions) == 0, err != nil && !missing:
		return Presented{Unreadable: err}
	case len(sessions) > 0:
		return Presented{Unreadable: errSeveral}
	case strings.EqualFold(scheme, "ApiKey"):
		return ParseKey(raw)
	case strings.EqualFold(scheme, "Bearer") && d.hasIssuer && access.LooksForeign(raw):
		c, ok := access.Foreign(raw)
		return present(IssuerToken, c, ok, ErrToken)
	case strings.EqualFold(scheme, "Bearer"):
		return d.ReadToken(raw)
	}
	return Presented{Unreadable: wrongScheme("The scheme of the Authorization header is not supported. " + d.missing.Message)}
}

func authorization(h http.Header, missing error) (scheme, raw string, err error) {
	values := h["Authorization"]
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", "", missing
	case len(values) > 1 || strings.Contains(values[0], ",") && lists.MatchString(values[0]):
		return "", "", errSeveral
	}
	scheme, raw, _ = strings.Cut(values[0], " ")
	return scheme, strings.TrimLeft(raw, " "), nil // 1*SP, RFC 9110 section 11.4
}

// present returns a credential, or the refusal of a malformed one.
func present(kind Kind, c access.Credential, ok bool, malformed error) Presented {
	if !ok {
		return Presented{Kind: kind, Unreadable: malformed}
	}
	return Presented{Kind: kind, Credential: c}
}

// ParseKey reads an API key with any prefix, so keys stay valid when the setting changes.
func ParseKey(raw string) Presented {
	if strings.HasPrefix(raw, access.TokenPrefix+"_") {
		return Presented{Kind: Key, Unreadable: wrongScheme("This is an access token: send it as \"Authorization: Bearer kat_…\".")}
	}
	c, ok := access.Parse(raw)
	return present(Key, c, ok, ErrKey)
}

// ReadToken reads an access token. A token in the form that Keyhook generates must have a valid checksum. Any other text may be
// the token that the operator chose for the first start.
func (d *Reader) ReadToken(raw string) Presented {
	c, minted := access.Parse(raw)
	prefix, looksMinted := access.LooksMinted(raw)
	switch {
	case strings.HasPrefix(raw, d.keyPrefix), minted && c.Prefix() != access.TokenPrefix:
		return Presented{Kind: Token, Unreadable: wrongScheme("This is not an access token. " + d.missingKey.Message)}
	case minted:
		return Presented{Kind: Token, Credential: c}
	case looksMinted && prefix == access.TokenPrefix:
		return Presented{Kind: Token, Unreadable: ErrToken}
	}
	c, ok := access.Opaque(raw)
	return present(Token, c, ok, ErrToken)
}

// ParseLink reads the secret of a sign-in link.
func ParseLink(raw string) Presented {
	c, ok := access.ParseLink(raw)
	return present(Link, c, ok, ErrLink)
}

// lists are the forms of an Authorization header with several credentials, as a proxy makes of several headers. A comma alone is not
// enough: a token that an operator chose may contain one (but no space), and commas separate the parameters of other schemes.
var lists = regexp.MustCompile(`(?i)^apikey |^bearer +\S+\s|,\s*(apikey|bearer)\s|,\s*[a-z][a-z0-9]*_[0-9a-z]{36}\b`)
