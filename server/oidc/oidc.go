// Package oidc owns what Keyhook does with an identity provider, the issuer. It verifies tokens that the issuer has signed: which
// algorithms and keys it accepts, and which claims a token must have. It signs in people. It does not know users, organizations or
// the requests of browsers.
//
// It follows OpenID Connect Core 1.0 section 3.1.3.7 and Discovery 1.0, RFC 9068 for access tokens, and the advice of RFC
// 8725.
package oidc

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// Options configure a Verifier. Issuer, Audience and Logger are required.
type Options struct {
	Issuer            string // exactly as its tokens name it
	Audience          string // exactly as its tokens name this service
	OrganizationClaim string // the claim that names the organization; empty: none does
	Roots             *x509.CertPool
	Transport         http.RoundTripper // nil: a transport of the package, which trusts Roots, or the system's roots if Roots is nil
	Logger            *slog.Logger
}

// Verifier verifies tokens. Use New.
type Verifier struct {
	options Options
	source  source
	keys    keySet
}

// New returns a verifier. It accepts no token until Run has received the keys of the issuer.
func New(o Options) *Verifier {
	return &Verifier{options: o, source: newSource(o), keys: keySet{wanted: make(chan chan struct{}), ended: make(chan struct{})}}
}

// algorithms are the accepted signature algorithms. Keyhook has only public keys, so no symmetric algorithm is among them,
// and neither is "none".
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// types are the accepted values of typ, in lower case: any JWT, and access tokens (RFC 9068 section 2.1). A token without a
// typ is accepted too. Other tokens of an issuer name their type (RFC 8725 section 3.11), and may have been made for
// somebody else: a logout token, a proof of possession, the response of an introspection.
var types = []string{"", "jwt", "at+jwt"}

// Verify returns the identity in a token. It verifies the signature each time, so a key that the issuer removes stops counting as soon as
// Run has the new keys. Faults: Unauthenticated and Unavailable. The code invalid_key means that the token is malformed or not signed by
// the issuer. The codes for a signed token are wrong_issuer, wrong_audience, token_expired, token_not_yet_valid, wrong_token_type and
// invalid_claims. Unavailable means that the key is unknown and the issuer does not respond. Each fault has the reason as its private
// cause, without the token.
func (v *Verifier) Verify(ctx context.Context, c access.Credential) (access.Identity, error) {
	payload, err := v.verifySignature(ctx, c.Reveal())
	if err != nil {
		return access.Identity{}, err
	}
	return v.identify(payload, v.options.Audience, "oidc.audience")
}

// verifySignature returns the payload of a token if a key of the issuer has signed it. It uses two fields of the header.
// The algorithm must be accepted and fit the key. The key id only selects among the keys of the issuer. verifySignature
// ignores keys that the token contains or points to (jwk, jku, x5c, x5u).
func (v *Verifier) verifySignature(ctx context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, invalid(err)
	}
	header := jws.Signatures[0].Header
	if _, found := header.ExtraHeaders["crit"]; found {
		return nil, invalid(errors.New("the header has crit, so the token needs an extension that Keyhook does not support"))
	}
	keys, err := v.keys.find(ctx, header.KeyID, header.Algorithm)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if payload, err := jws.Verify(key.Key); err == nil {
			return payload, checkType(header)
		}
	}
	return nil, invalid(fmt.Errorf("the signature does not match the key %.100q of the issuer", header.KeyID))
}

func checkType(header jose.Header) error {
	typ, found := header.ExtraHeaders[jose.HeaderType]
	text, isText := typ.(string)
	if found && !isText || !slices.Contains(types, strings.TrimPrefix(strings.ToLower(text), "application/")) {
		return errTokenType.Because(fmt.Errorf("typ is %.100q", fmt.Sprint(typ)))
	}
	if cty, found := header.ExtraHeaders[jose.HeaderContentType]; found {
		return errTokenType.Because(fmt.Errorf("cty is %.100q", fmt.Sprint(cty)))
	}
	return nil
}

// The refusals that have the same text for every reason.
var (
	errTokenType = fault.New(fault.Unauthenticated, "wrong_token_type", "This token is neither an ID token nor an access token.")
	errNoKeys    = fault.New(fault.Unavailable, "issuer_unavailable",
		"This token cannot be verified now, because the identity provider does not respond; try again later.")

	errAway    = fault.New(fault.Unavailable, "issuer_unavailable", "The identity provider does not respond; try again later.")
	errExpired = fault.New(fault.Unauthenticated, "sign_in_expired", "This sign-in was not started in this browser, or it has ended; sign in again.")
	errDenied  = fault.New(fault.Unauthenticated, "sign_in_denied", "The identity provider did not sign you in, or you cancelled the sign-in.")
	errFailed  = fault.New(fault.Unauthenticated, "sign_in_failed", "Keyhook cannot use the response of the identity provider; see the log of the server.")
)

// maxCause is the most characters of a reason, which may quote what a caller wrote into the token.
const maxCause = 200

func invalid(why error) error {
	return fault.New(fault.Unauthenticated, "invalid_key",
		"This token is not valid here; get a new one from the identity provider.").Because(shorten(why))
}

func shorten(err error) error {
	if text := []rune(err.Error()); len(text) > maxCause {
		return errors.New(string(text[:maxCause]) + "…")
	}
	return err
}
