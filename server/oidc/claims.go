package oidc

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// leeway is by how much the issuer's clock and ours may differ.
const leeway = time.Minute

// maxSubject is the longest sub, in characters (OpenID Connect Core 1.0 section 2).
const maxSubject = 255

// claims are the members of a token's payload. Their names are compared to the letter and none comes twice: with
// encoding/json, a claim "Sub" that users may set themselves would count as their sub.
type claims map[string]jsontext.Value

// read makes the checks of a payload whose signature holds.
func (v *Verifier) read(payload []byte) (i access.Identity, err error) {
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil {
		return i, unclear(fmt.Errorf("the payload is no JSON object with distinct names: %w", err))
	}
	issuer, err := c.text("iss")
	switch {
	case err != nil:
		return i, unclear(err)
	case issuer != v.issuer:
		return i, refused("wrong_issuer", "This token is from another issuer than the one that is trusted here.",
			fmt.Errorf("iss is %.200q; oidc.issuer is %q", issuer, v.issuer))
	}
	audience, err := c.texts("aud")
	switch {
	case err != nil:
		return i, unclear(err)
	case !slices.Contains(audience, v.audience):
		return i, refused("wrong_audience", "This token was made for another service.",
			fmt.Errorf("aud is %.200q; oidc.audience is %q", audience, v.audience))
	}
	if _, found := c["events"]; found {
		return i, wrongType(errors.New("it has an events claim: it is a security event, as a logout token")) // RFC 8417 section 2.2
	}
	if err := c.checkTimes(time.Now()); err != nil {
		return i, err
	}
	return v.identity(c)
}

// checkTimes says whether the token counts at now.
func (c claims) checkTimes(now time.Time) error {
	exp, err := c.time("exp")
	if err != nil {
		return unclear(err)
	}
	if exp == nil {
		return unclear(errors.New("there is no exp"))
	}
	if !now.Before(exp.Add(leeway)) {
		return refused("token_expired", "This token has expired; get a new one from the identity provider.",
			fmt.Errorf("exp is %s", exp.UTC().Format(time.RFC3339)))
	}
	for _, name := range []string{"nbf", "iat"} {
		begin, err := c.time(name)
		if err != nil {
			return unclear(err)
		}
		if begin != nil && now.Before(begin.Add(-leeway)) {
			return refused("token_not_yet_valid", "This token is not valid yet; the clocks may differ.",
				fmt.Errorf("%s is %s, by more than %s later than this machine's clock", name, begin.UTC().Format(time.RFC3339), leeway))
		}
	}
	return nil
}

// identity reads whom the token is about.
func (v *Verifier) identity(c claims) (i access.Identity, err error) {
	i.Subject, err = c.text("sub")
	if err == nil && (i.Subject == "" || len(i.Subject) > maxSubject) {
		err = errors.New("sub is empty, or too long")
	}
	if err != nil {
		return access.Identity{}, unclear(err)
	}
	if string(c["email_verified"]) == "true" {
		if i.Email, err = c.text("email"); err != nil {
			return access.Identity{}, unclear(err)
		}
	}
	if _, found := c[v.organizationClaim]; !found || v.organizationClaim == "" {
		return i, nil
	}
	// Some providers list organizations. One is as good as a text; of several, none is the one meant.
	named, err := c.texts(v.organizationClaim)
	if err == nil && len(named) > 1 {
		err = fmt.Errorf("%s names %d organizations", v.organizationClaim, len(named))
	}
	if err != nil {
		return access.Identity{}, unclear(err)
	}
	if len(named) == 1 {
		i.Organization = named[0]
	}
	return i, nil
}

// text returns a claim that must be there and be a string.
func (c claims) text(name string) (text string, err error) {
	if value := c[name]; value.Kind() != '"' || json.Unmarshal(value, &text) != nil {
		return "", fmt.Errorf("%s is missing, or no string", name)
	}
	return text, nil
}

// texts returns a claim that must be there and be a string or an array of strings.
func (c claims) texts(name string) (list []string, err error) {
	if c[name].Kind() == '"' {
		text, err := c.text(name)
		return []string{text}, err
	}
	if value := c[name]; value.Kind() != '[' || json.Unmarshal(value, &list) != nil {
		return nil, fmt.Errorf("%s is missing, or neither a string nor a list of strings", name)
	}
	return list, nil
}

// latest is the last second of the year 9999, the latest that time can be written for.
const latest = 253402300799

// time returns a claim that must be a NumericDate (RFC 7519 section 2), if it is there.
func (c claims) time(name string) (*time.Time, error) {
	value, found := c[name]
	if !found {
		return nil, nil
	}
	var at float64
	if value.Kind() != '0' || json.Unmarshal(value, &at) != nil || at < 0 || at > latest {
		return nil, fmt.Errorf("%s is no time in seconds since 1970", name)
	}
	seconds, fraction := math.Modf(at)
	t := time.Unix(int64(seconds), int64(fraction*1e9))
	return &t, nil
}

// refused refuses a token that the issuer has signed.
func refused(code, message string, why error) error {
	return fault.New(fault.Unauthenticated, code, "%s", message).Because(why)
}

func unclear(why error) error {
	return refused("invalid_claims", "This token does not say what it must: iss, aud, exp and sub, each once and of its type; see the server's log.", why)
}

func wrongType(why error) error {
	return refused("wrong_token_type", "This token is neither an ID token nor an access token.", why)
}
