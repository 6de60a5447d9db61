package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// The name of the cookie. With the prefix, browsers take it only over HTTPS, for this host alone and from nobody else of
// its domain (RFC 6265bis section 4.1.3.2).
const (
	cookieName       = "keyhook_session"
	secureCookieName = "__Host-" + cookieName
)

var errSession = fault.New(fault.Unauthenticated, "invalid_session", "This session has ended; sign in again.")

// reachedAt notes what the address by which browsers reach the server tells about them: whether they come by HTTPS, and
// from which origin the console speaks, which a proxy may have hidden from the server.
func (s *Server) reachedAt(base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return nil // the option is empty, or normalize has refused it
	}
	s.https = s.https || u.Scheme == "https"
	if err := s.origins.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
		return fmt.Errorf("server: Options.BaseURL: %w", err)
	}
	return nil
}

// sameOrigin refuses what a browser does at the bidding of another site (CSRF). Whatever is no browser passes: it has no
// cookie that it does not send knowingly.
func (s *Server) sameOrigin(c *call) error {
	if err := s.origins.Check(c.request); err != nil {
		return fault.New(fault.Forbidden, "cross_origin",
			"This request comes from another site than the console's; if it does not, set server.base_url to the console's address.").Because(err)
	}
	return nil
}

// isSecure reports whether the browser speaks HTTPS, with us or with a proxy that we trust.
func (s *Server) isSecure(c *call) bool {
	if s.https {
		return true
	}
	proto := c.request.Header["X-Forwarded-Proto"]
	return len(proto) == 1 && strings.EqualFold(strings.TrimSpace(proto[0]), "https") && s.isTrusted(peer(c.request.RemoteAddr))
}

func (s *Server) cookieName(c *call) string {
	if s.isSecure(c) {
		return secureCookieName
	}
	return cookieName
}

// sessionCookies returns what looks like the cookie of a session; other cookies are none of ours.
func (s *Server) sessionCookies(c *call) []*http.Cookie {
	if len(c.request.Header["Cookie"]) == 0 {
		return nil
	}
	return c.request.CookiesNamed(s.cookieName(c))
}

// cookie reads the credential of a request that can have it in a cookie only. A browser sends that by itself, whoever has
// asked it to, so it counts only where the console has. Errors: Unauthenticated where there is none or it was never given
// out; Malformed where there are two, Forbidden where another site is behind the request.
func (s *Server) cookie(c *call, cookies []*http.Cookie) (found access.Credential, err error) {
	switch len(cookies) {
	case 0:
		return found, errNoCredential
	case 1:
	default:
		return found, errTwo
	}
	c.secret() // no cache may keep what is for this browser alone
	if err := s.sameOrigin(c); err != nil {
		return found, err
	}
	found, ok := access.ParseSession(cookies[0].Value)
	if !ok {
		s.clearCookie(c)
		return found, errSession
	}
	return found, nil
}

func (s *Server) setCookie(c *call, credential access.Credential, session access.Session) {
	left := time.Until(time.UnixMilli(session.ExpiresAt))
	http.SetCookie(c, s.newCookie(c, credential.Reveal(), max(1, int(left.Round(time.Second)/time.Second))))
}

// clearCookie has the browser forget it.
func (s *Server) clearCookie(c *call) { http.SetCookie(c, s.newCookie(c, "", -1)) }

func (s *Server) newCookie(c *call, value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: s.cookieName(c), Value: value, Path: "/", MaxAge: maxAge,
		Secure: s.isSecure(c), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}
