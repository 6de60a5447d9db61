package oidc

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// leeway is how much the clocks of the issuer and of this machine may differ.
const leeway = time.Minute

// maxSubject is the longest sub, in characters (OpenID Connect Core 1.0 section 2).
const maxSubject = 255

// claims is the payload of a token. form.Unmarshal compares names exactly and refuses duplicate names. With encoding/json,
// a claim "Sub" that users can set themselves would replace their sub.
type claims struct {
	Issuer        string          `json:"iss"`
	Audience      jwt.Audience    `json:"aud"`
	Subject       string          `json:"sub"`
	Expiry        *float64        `json:"exp"`
	NotBefore     *float64        `json:"nbf"`
	IssuedAt      *float64        `json:"iat"`
	Events        json.RawMessage `json:"events"`
	Email         any             `json:"email"`
	EmailVerified any             `json:"email_verified"`
}

// identify checks the claims of a payload whose signature is valid, and returns the identity in them. setting names the audience.
func (v *Verifier) identify(payload []byte, audience, setting string) (access.Identity, error) {
	var c claims
	if err := form.Unmarshal(payload, &c); err != nil {
		return access.Identity{}, invalidClaims(err)
	}
	switch {
	case c.Issuer != "" && c.Issuer != v.options.Issuer:
		return access.Identity{}, unauthenticated("wrong_issuer", "This token is not from the issuer that this server trusts.",
			fmt.Errorf("iss is %.200q; oidc.issuer is %q", c.Issuer, v.options.Issuer))
	case c.Audience != nil && !slices.Contains(c.Audience, audience):
		return access.Identity{}, unauthenticated("wrong_audience", "This token was made for another service.",
			fmt.Errorf("aud is %.200q; %s is %q", c.Audience, setting, audience))
	case c.Issuer == "" || c.Audience == nil || c.Subject == "" || len(c.Subject) > maxSubject:
		return access.Identity{}, invalidClaims(errors.New("iss, aud or sub is missing, or sub is too long"))
	case c.Events != nil: // RFC 8417 section 2.2
		return access.Identity{}, errTokenType.Because(errors.New("the token has an events claim, so it is a security event, such as a logout token"))
	}
	if err := c.checkTimes(time.Now()); err != nil {
		return access.Identity{}, err
	}
	identity := access.Identity{Subject: c.Subject}
	if c.EmailVerified == true {
		email, isText := c.Email.(string)
		if !isText {
			return access.Identity{}, invalidClaims(errors.New("email_verified is true, but email is not a string"))
		}
		identity.Email = email
	}
	var err error
	if identity.Organization, err = v.organization(payload); err != nil {
		return access.Identity{}, invalidClaims(err)
	}
	return identity, nil
}

// verifyIDToken is Verify for an ID token that was made for a sign-in (OpenID Connect Core 1.0 section 3.1.3.7).
func (v *Verifier) verifyIDToken(ctx context.Context, token access.Credential, clientID, nonce string) (access.Identity, error) {
	payload, err := v.verifySignature(ctx, token.Reveal())
	if err != nil {
		return access.Identity{}, err
	}
	identity, err := v.identify(payload, clientID, "console.oidc_client_id")
	if err != nil {
		return access.Identity{}, err
	}
	var more struct {
		Nonce           string  `json:"nonce"`
		AuthorizedParty *string `json:"azp"`
	}
	if err := form.Unmarshal(payload, &more); err != nil {
		return access.Identity{}, invalidClaims(err)
	}
	switch {
	case subtle.ConstantTimeCompare([]byte(more.Nonce), []byte(nonce)) != 1:
		return access.Identity{}, invalidClaims(errors.New("nonce differs from the nonce of the sign-in"))
	case more.AuthorizedParty != nil && *more.AuthorizedParty != clientID:
		return access.Identity{}, invalidClaims(fmt.Errorf("azp is %.100q, and not the client id of the console", *more.AuthorizedParty))
	}
	return identity, nil
}

// organization returns the value of the claim that names the organization; empty if the token has none. Some providers
// send a list. A list of one organization counts as that organization.
func (v *Verifier) organization(payload []byte) (string, error) {
	if v.options.OrganizationClaim == "" {
		return "", nil
	}
	var all map[string]json.RawMessage
	if err := form.Unmarshal(payload, &all); err != nil {
		return "", err
	}
	claim, found := all[v.options.OrganizationClaim]
	if !found {
		return "", nil
	}
	var names jwt.Audience // a string or a list of strings
	if err := form.Unmarshal(claim, &names); err != nil || names == nil || len(names) > 1 {
		return "", fmt.Errorf("%s must be one string, or a list of one string", v.options.OrganizationClaim)
	}
	return strings.Join(names, ""), nil
}

// checkTimes checks the claims that are NumericDates (RFC 7519 section 2).
func (c *claims) checkTimes(now time.Time) error {
	if c.Expiry == nil {
		return invalidClaims(errors.New("exp is missing"))
	}
	for _, claim := range []struct {
		name    string
		seconds *float64
	}{{"exp", c.Expiry}, {"nbf", c.NotBefore}, {"iat", c.IssuedAt}} {
		if claim.seconds == nil {
			continue
		}
		if *claim.seconds < 0 || *claim.seconds > latest {
			return invalidClaims(fmt.Errorf("%s is not a number of seconds since 1970", claim.name))
		}
		whole, fraction := math.Modf(*claim.seconds)
		at := time.Unix(int64(whole), int64(fraction*1e9)).UTC()
		switch isEnd := claim.name == "exp"; {
		case isEnd && !now.Before(at.Add(leeway)):
			return unauthenticated("token_expired", "This token has expired; get a new one from the identity provider.",
				fmt.Errorf("exp is %s", at.Format(time.RFC3339)))
		case !isEnd && now.Before(at.Add(-leeway)):
			return unauthenticated("token_not_yet_valid", "This token is not valid yet, perhaps because the clocks differ; try again later.",
				fmt.Errorf("%s is %s, more than %s after the time of this machine", claim.name, at.Format(time.RFC3339), leeway))
		}
	}
	return nil
}

// latest is the last second of the year 9999, the last year that time.RFC3339 can write.
const latest = 253402300799

func unauthenticated(code, message string, why error) error {
	return fault.New(fault.Unauthenticated, code, "%s", message).Because(why)
}

func invalidClaims(why error) error {
	return unauthenticated("invalid_claims", "This token has a missing or wrong claim (iss, aud, exp or sub); see the log of the server.",
		shorten(fmt.Errorf("claims: %w", why)))
}
