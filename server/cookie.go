package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// The name of the cookie. With the prefix __Host-, browsers accept it only over HTTPS and only from this host (RFC 6265bis
// section 4.1.3.2).
const (
	cookieName       = "keyhook_session"
	secureCookieName = "__Host-" + cookieName
)

var errSession = fault.New(fault.Unauthenticated, "invalid_session", "The session has ended; sign in again.")

// cookies reads and writes the cookie of a console session. A browser sends the cookie by itself, so these rules keep other
// sites from using it.
type cookies struct {
	https   bool                        // every browser comes by HTTPS
	origins *http.CrossOriginProtection // who may send requests with a cookie
	trusted share.TrustedProxies
}

// newCookies makes the cookies of a server that browsers reach at baseURL. A proxy may hide from the server that browsers
// use HTTPS, and the origin of the console.
func newCookies(o Options) (*cookies, error) {
	k := &cookies{https: o.TLS != nil, origins: http.NewCrossOriginProtection(), trusted: o.TrustedProxies}
	u, err := url.Parse(o.BaseURL)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return k, nil // the option is empty, or normalize has refused it
	}
	k.https = k.https || u.Scheme == "https"
	if err := k.origins.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
		return nil, fmt.Errorf("server: Options.BaseURL: %w", err)
	}
	return k, nil
}

// sameOrigin refuses a request that a browser sends for another site (CSRF). Clients other than browsers pass: they send no
// cookie without knowing.
func (k *cookies) sameOrigin(r *http.Request) error {
	if err := k.origins.Check(r); err != nil {
		return fault.New(fault.Forbidden, "cross_origin",
			"The request comes from another site than the console; if it does not, set server.base_url to the address of the console.").Because(err)
	}
	return nil
}

// isSecure reports whether the browser speaks HTTPS, with us or with a proxy that we trust.
func (k *cookies) isSecure(r *http.Request) bool {
	if k.https {
		return true
	}
	proto := r.Header["X-Forwarded-Proto"]
	return len(proto) == 1 && strings.EqualFold(strings.TrimSpace(proto[0]), "https") && k.trusted.Contains(share.Peer(r))
}

func (k *cookies) name(r *http.Request) string {
	if k.isSecure(r) {
		return secureCookieName
	}
	return cookieName
}

// of returns the cookies of a request that have the name of the session cookie.
func (k *cookies) of(x *exchange) []*http.Cookie {
	if len(x.request.Header["Cookie"]) == 0 {
		return nil
	}
	return x.request.CookiesNamed(k.name(x.request))
}

// read reads the credential of a request that has no other one. The browser sends the cookie whoever caused the request, so
// the cookie counts only in requests of the console. Errors: Unauthenticated if there is no cookie or its form is wrong;
// Malformed if there are two; Forbidden if another site caused the request.
func (k *cookies) read(x *exchange, sessions []*http.Cookie) (found access.Credential, err error) {
	switch len(sessions) {
	case 0:
		return found, errNoCredential
	case 1:
	default:
		return found, errTwo
	}
	x.noStore() // the response is for this browser only
	if err := k.sameOrigin(x.request); err != nil {
		return found, err
	}
	found, ok := access.ParseSession(sessions[0].Value)
	if !ok {
		k.clear(x)
		return found, errSession
	}
	return found, nil
}

// set gives the browser the cookie of a session.
func (k *cookies) set(x *exchange, credential access.Credential, session access.Session) {
	left := time.Until(time.UnixMilli(session.ExpiresAt))
	http.SetCookie(x, k.newCookie(x, credential.Reveal(), max(1, int(left.Round(time.Second)/time.Second))))
}

// clear has the browser forget the cookie.
func (k *cookies) clear(x *exchange) { http.SetCookie(x, k.newCookie(x, "", -1)) }

func (k *cookies) newCookie(x *exchange, value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: k.name(x.request), Value: value, Path: "/", MaxAge: maxAge,
		Secure: k.isSecure(x.request), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}
