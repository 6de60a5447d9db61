package oidc

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
)

// discovery is what Keyhook reads of the discovery document (OpenID Connect Discovery 1.0 section 3).
type discovery struct {
	Issuer                string   `json:"issuer"`
	JWKSURI               string   `json:"jwks_uri"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	TokenEndpointMethods  []string `json:"token_endpoint_auth_methods_supported"`
}

// endpoints are the URLs for signing in people. They are never changed.
type endpoints struct {
	authorization, token string
	secretInBody         bool  // the token endpoint takes the secret of the client only in the body
	problem              error // why nobody can sign in
}

// endpoints returns the URLs for signing in people. An issuer that only signs tokens for programs has none.
func (d discovery) endpoints() *endpoints {
	authorization, err1 := d.trustedURL("authorization_endpoint", d.AuthorizationEndpoint)
	token, err2 := d.trustedURL("token_endpoint", d.TokenEndpoint)
	return &endpoints{
		authorization: authorization, token: token, problem: errors.Join(err1, err2),
		// Without a list, it is client_secret_basic.
		secretInBody: len(d.TokenEndpointMethods) > 0 && !slices.Contains(d.TokenEndpointMethods, "client_secret_basic"),
	}
}

// trustedURL returns a URL of the discovery document. It refuses plain HTTP, except for the host of an issuer that the operator has named
// with http.
func (d discovery) trustedURL(name, text string) (string, error) {
	u, err := url.Parse(text)
	issuer, _ := url.Parse(d.Issuer) // config has checked it
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return "", fmt.Errorf("%s in the discovery document is missing or not a URL", name)
	case u.Scheme != "https" && (u.Scheme != "http" || u.Scheme != issuer.Scheme || u.Hostname() != issuer.Hostname()):
		return "", fmt.Errorf("%s in the discovery document is not https, so anybody on the network could replace the response", name)
	}
	return u.String(), nil
}
