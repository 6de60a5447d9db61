// Package oidc owns the verification of tokens that an identity provider, the issuer, has signed: which algorithms and
// keys count, and what such a token must say. It does not know users, organizations or HTTP requests.
//
// It follows OpenID Connect Core 1.0 section 3.1.3.7 and Discovery 1.0, RFC 9068 for access tokens, and the advice of RFC
// 8725.
package oidc

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// Options say whose tokens count. Issuer and Audience are required.
type Options struct {
	Issuer            string // as its tokens name it, to the letter
	Audience          string // as its tokens name us
	OrganizationClaim string // which claim names the organization; empty is none
	Roots             *x509.CertPool
	Transport         http.RoundTripper // in place of the package's own, which trusts Roots; nil for the system's
	Logger            *slog.Logger      // nil is slog.Default
}

// Verifier verifies tokens. Use New.
type Verifier struct {
	issuer, audience, organizationClaim string

	source source
	keys   keySet
	log    *slog.Logger
}

// New returns a verifier. Nothing can be verified until Run has asked the issuer for its keys.
func New(o Options) *Verifier {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Verifier{
		issuer: o.Issuer, audience: o.Audience, organizationClaim: o.OrganizationClaim,
		source: newSource(o), keys: keySet{wanted: make(chan struct{}, 1)}, log: o.Logger,
	}
}

// algorithms that count. The issuer holds a key that we do not have, so none is symmetric, and "none" is none of them.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// Verify returns what a token says of its holder. Its signature is verified every time, so that a key that the issuer
// gives up is given up here with the next look at its keys.
//
// Faults: Unauthenticated, with the code invalid_key where the token is malformed or not signed by the issuer, and
// wrong_issuer, wrong_audience, token_expired, token_not_yet_valid, wrong_token_type or invalid_claims where it is;
// Unavailable where its key is not known and the issuer does not answer. Each has the reason as its private cause, without
// the token.
func (v *Verifier) Verify(ctx context.Context, c access.Credential) (access.Identity, error) {
	a := &attempt{Verifier: v}
	_, err := oidc.NewVerifier(v.issuer, a, &oidc.Config{
		ClientID: v.audience, SupportedSigningAlgs: algorithms,
		Now: func() time.Time { return time.Now().Add(-leeway - time.Second) }, // it drops fractions of seconds
	}).Verify(ctx, c.Reveal())
	switch {
	case a.err != nil:
		return access.Identity{}, a.err
	case err != nil: // before the signature, or by a check that has ours before it
		return access.Identity{}, invalid(err)
	}
	return a.identity, nil
}

// attempt is one verification. It is the key set that the library asks, and keeps why it refused: the library would make
// a text of that.
type attempt struct {
	*Verifier
	identity access.Identity
	err      error
}

// VerifySignature implements oidc.KeySet. It looks at the claims too, more strictly than the library does.
func (a *attempt) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	if payload, err = a.signed(ctx, token); err == nil {
		a.identity, err = a.read(payload)
	}
	a.err = err
	return payload, err
}

const maxCause = 200 // characters of a reason: it may quote the token's header, which anybody may have written

// invalid refuses a token that the issuer has not signed, whatever else it may be.
func invalid(why error) error {
	return fault.New(fault.Unauthenticated, "invalid_key",
		"This token is not valid here; get a new one from the identity provider.").Because(shorten(why))
}

type shortened string

func (s shortened) Error() string { return string(s) }
