package credential

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// cookieName is the name of the cookie of a session, without securePrefix.
const cookieName = "keyhook_session"

// securePrefix begins the names of cookies that browsers accept only over HTTPS and only from this host (RFC 6265bis section 4.1.3.2).
const securePrefix = "__Host-"

// Cookies reads and writes the cookie of a console session. A browser sends it by itself, so these rules keep other sites from using it.
type Cookies struct {
	https   bool                        // every browser comes by HTTPS
	origins *http.CrossOriginProtection // who may send requests with a cookie
	trusted share.TrustedProxies
}

// NewCookies returns the cookies of a server that browsers reach at baseURL, which may be empty. https means that the server
// itself speaks HTTPS. A proxy may hide from the server that browsers use HTTPS, and the origin of the console.
func NewCookies(baseURL string, https bool, trusted share.TrustedProxies) (*Cookies, error) {
	k := &Cookies{https: https, origins: http.NewCrossOriginProtection(), trusted: trusted}
	u, err := url.Parse(baseURL)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return k, err
	}
	k.https = k.https || u.Scheme == "https"
	return k, k.origins.AddTrustedOrigin(u.Scheme + "://" + u.Host)
}

// CheckOrigin refuses a request that a browser sends for another site (CSRF). Other clients pass: they know which cookies they send.
func (k *Cookies) CheckOrigin(r *http.Request) error {
	if err := k.origins.Check(r); err != nil {
		return fault.New(fault.Forbidden, "cross_origin",
			"The request comes from another site than the console; if it does not, set server.base_url to the address of the console.").Because(err)
	}
	return nil
}

// isSecure reports whether the browser speaks HTTPS, with us or with a proxy that we trust.
func (k *Cookies) isSecure(r *http.Request) bool {
	if k.https {
		return true
	}
	proto := r.Header["X-Forwarded-Proto"]
	return len(proto) == 1 && strings.EqualFold(strings.TrimSpace(proto[0]), "https") && k.trusted.Contains(share.Peer(r))
}

// of returns the cookies of a request that have the name of the session cookie.
func (k *Cookies) of(r *http.Request) []*http.Cookie {
	if len(r.Header["Cookie"]) == 0 {
		return nil
	}
	return r.CookiesNamed(k.cookie(r, cookieName, "", 0).Name)
}

// read reads the cookie of a request that has no other credential. A browser also sends the cookie in requests that other
// sites cause, so the cookie counts only in requests of the console.
func (k *Cookies) read(r *http.Request, session *http.Cookie) Presented {
	if err := k.CheckOrigin(r); err != nil {
		return Presented{Kind: Session, Unreadable: err}
	}
	c, ok := access.ParseSession(session.Value)
	return present(Session, c, ok, ErrSession)
}

// Set gives the browser the cookie of a session.
func (k *Cookies) Set(w http.ResponseWriter, r *http.Request, credential access.Credential, session access.Session) {
	left := time.Until(time.UnixMilli(session.ExpiresAt))
	http.SetCookie(w, k.cookie(r, cookieName, credential.Reveal(), max(1, int(left.Round(time.Second)/time.Second))))
}

// signInName begins the names of the cookies with which a browser that signs in with the identity provider comes back. The state
// of the sign-in ends the name, so that several tabs can sign in at once.
const signInName = "keyhook_sign_in_"

// The limits of the cookies of one browser. The proxy in front may take only 8 KiB of headers. Anybody can send a thousand cookies, so
// one response clears only a few.
const (
	maxSignIns     = 4
	maxSignInBytes = 4 << 10
	maxCleared     = 8
)

// SignIn returns the value of the cookie for the state of a sign-in. It is empty unless the browser sent exactly one such cookie.
func (k *Cookies) SignIn(r *http.Request, state string) string {
	if found := r.CookiesNamed(k.signInCookie(r, state, "", 0).Name); len(found) == 1 {
		return found[0].Value
	}
	return ""
}

// SetSignIn gives the browser the cookie of a sign-in that has begun. The browser forgets its oldest sign-ins beyond the limits.
func (k *Cookies) SetSignIn(w http.ResponseWriter, r *http.Request, state, value string, life time.Duration) {
	prefix, kept, size, cleared := k.signInCookie(r, "", "", 0).Name, 1, len(value), 0
	for _, c := range slices.Backward(r.Cookies()) { // browsers send the oldest first (RFC 6265 section 5.4)
		other, found := strings.CutPrefix(c.Name, prefix)
		if !found {
			continue
		}
		kept, size = kept+1, size+len(c.Value)
		if (kept > maxSignIns || size > maxSignInBytes) && cleared < maxCleared {
			http.SetCookie(w, k.signInCookie(r, other, "", -1))
			cleared++
		}
	}
	http.SetCookie(w, k.signInCookie(r, state, value, int(life/time.Second)))
}

// ClearSignIn deletes the cookie for the state of a sign-in, if the browser has sent it.
func (k *Cookies) ClearSignIn(w http.ResponseWriter, r *http.Request, state string) {
	if c := k.signInCookie(r, state, "", -1); len(r.CookiesNamed(c.Name)) > 0 {
		http.SetCookie(w, c)
	}
}

// signInCookie is a cookie with SameSite=Lax: the identity provider is another site, and it sends the browser back with a link.
func (k *Cookies) signInCookie(r *http.Request, state, value string, maxAge int) *http.Cookie {
	c := k.cookie(r, signInName+state[:min(len(state), 8)], value, maxAge)
	c.SameSite = http.SameSiteLaxMode
	return c
}

// Clear has the browser forget the cookie.
func (k *Cookies) Clear(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, k.cookie(r, cookieName, "", -1))
}

func (k *Cookies) cookie(r *http.Request, name, value string, maxAge int) *http.Cookie {
	secure := k.isSecure(r)
	if secure {
		name = securePrefix + name
	}
	return &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: maxAge, Secure: secure, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}
