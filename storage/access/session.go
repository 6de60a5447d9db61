package access

import (
	"crypto/rand"
	"encoding/base64"
	"time"
)

// sessionBytes is the number of random bytes in the cookie of a session.
const sessionBytes = 32

// SessionKind says how a session was started.
type SessionKind string

// The kinds of sessions.
const (
	TokenSession  SessionKind = "token"        // by an access token, as which it acts
	LinkSession   SessionKind = "sign_in_link" // by a link to an access token, as which it acts
	PortalSession SessionKind = "portal"       // by a portal link: the service account, limited to a role
	OIDCSession   SessionKind = "oidc"         // by the identity provider
)

// Session is a session of the console, as it is stored: everything but the value of its cookie.
type Session struct {
	RowID     int64       `db:"id"`
	ID        string      `db:"public_id"`
	Kind      SessionKind `db:"kind"`
	LinkID    *string     `db:"link_id"`    // public id of the link that started it; nil if none did
	Role      string      `db:"role"`       // of a portal session: the name of the role that limits it; otherwise empty
	ReturnURL *string     `db:"return_url"` // where a portal leads back to; nil if nowhere
	MaySwitch bool        `db:"may_switch"` // it may act in every organization of its user
	CreatedAt int64       `db:"created_at"`
	ExpiresAt int64       `db:"expires_at"`
}

// IsPortal reports whether a portal link started the session.
func (s *Session) IsPortal() bool { return s != nil && s.Kind == PortalSession }

// MinPortalLife and MaxPortalLife limit how long a portal link can be valid.
const (
	MinPortalLife = time.Minute
	MaxPortalLife = 24 * time.Hour
)

// NewPortalLink asks for a link that signs in to the console of one organization. The session acts as the service account of the
// organization, limited to a role.
type NewPortalLink struct {
	Credential Credential
	Role       string
	Life       time.Duration
	ReturnURL  *string // nil for none
}

// SignInLink is a link as it is stored: everything but its secret.
type SignInLink struct {
	ID        string `db:"public_id"`
	ExpiresAt int64  `db:"expires_at"`
}

// ParseLink reads the secret of a sign-in link. ok is false if it was not minted with LinkPrefix.
func ParseLink(raw string) (c Credential, ok bool) {
	c, ok = Parse(raw)
	return c, ok && c.Prefix() == LinkPrefix
}

// MintSession makes the value of a session's cookie: 256 bits from crypto/rand, which cannot fail.
func MintSession() Credential {
	var b [sessionBytes]byte
	rand.Read(b[:])
	return credential(base64.RawURLEncoding.EncodeToString(b[:]))
}

// ParseSession reads the value of a cookie. ok is false if MintSession cannot have made it.
func ParseSession(raw string) (c Credential, ok bool) {
	if len(raw) != base64.RawURLEncoding.EncodedLen(sessionBytes) {
		return Credential{}, false
	}
	if _, err := base64.RawURLEncoding.Strict().DecodeString(raw); err != nil {
		return Credential{}, false
	}
	return credential(raw), true
}
