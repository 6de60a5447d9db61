package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// types are the typ that a token may have, in small letters: that of any JWT, and that of access tokens (RFC 9068 section
// 2.1). Without a typ it counts as well. Whatever else an issuer signs says what it is (RFC 8725 section 3.11), and may
// have been made for somebody else's hands: a logout token, a proof of possession, the answer of an introspection.
var types = []string{"", "jwt", "at+jwt"}

// minRSA is the least number of bits of an RSA key (RFC 7518 section 3.3).
const minRSA = 2048

var accepted = func() (list []jose.SignatureAlgorithm) {
	for _, name := range algorithms {
		list = append(list, jose.SignatureAlgorithm(name))
	}
	return list
}()

// signed returns the payload of a token if one of the issuer's keys has signed it. Of the header it believes the algorithm,
// which must be on our list and fit the key, and the key id, which can but choose among the issuer's keys. Keys that the
// token brings along or points to (jwk, jku, x5c, x5u) are nobody's.
func (v *Verifier) signed(ctx context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, accepted)
	if err != nil {
		return nil, invalid(err)
	}
	header := jws.Signatures[0].Header
	if _, found := header.ExtraHeaders["crit"]; found {
		return nil, invalid(errors.New("its header has crit: it is not to be read without an extension that is not known here"))
	}
	keys, err := v.keys.find(ctx, header.KeyID, header.Algorithm)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		payload, err := jws.Verify(key.Key)
		if err != nil {
			continue
		}
		if err := checkType(header); err != nil {
			return nil, err
		}
		return payload, nil
	}
	return nil, invalid(fmt.Errorf("its signature is not that of the issuer's key %.100q", header.KeyID))
}

func checkType(header jose.Header) error {
	typ, found := header.ExtraHeaders[jose.HeaderType]
	text, isText := typ.(string)
	if found && !isText || !slices.Contains(types, strings.TrimPrefix(strings.ToLower(text), "application/")) {
		return wrongType(fmt.Errorf("its typ is %.100q", fmt.Sprint(typ)))
	}
	if cty, found := header.ExtraHeaders[jose.HeaderContentType]; found {
		return wrongType(fmt.Errorf("its payload is of the type %.100q", fmt.Sprint(cty)))
	}
	return nil
}

// fits reports whether a key of the issuer's verifies signatures of an algorithm: the type of the key decides, never the
// token alone.
func fits(key jose.JSONWebKey, algorithm string) bool {
	if key.Algorithm != "" && key.Algorithm != algorithm {
		return false
	}
	switch k := key.Key.(type) {
	case *rsa.PublicKey:
		return algorithm[:2] == "RS" || algorithm[:2] == "PS"
	case *ecdsa.PublicKey:
		return curves[algorithm] != nil && k.Curve == curves[algorithm]
	case ed25519.PublicKey:
		return algorithm == oidc.EdDSA
	}
	return false
}

var curves = map[string]elliptic.Curve{oidc.ES256: elliptic.P256(), oidc.ES384: elliptic.P384(), oidc.ES512: elliptic.P521()}

// usable reports whether a key of the issuer's may verify anything: a public key, strong enough, that is not there to
// encrypt.
func usable(key jose.JSONWebKey) bool {
	if key.Use != "" && key.Use != "sig" || !key.Valid() || !key.IsPublic() {
		return false
	}
	if k, isRSA := key.Key.(*rsa.PublicKey); isRSA {
		return k.N.BitLen() >= minRSA
	}
	return true
}
