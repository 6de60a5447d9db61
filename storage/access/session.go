package access

import (
	"crypto/rand"
	"encoding/base64"
)

// sessionBytes is the number of random bytes in the cookie of a session.
const sessionBytes = 32

// Session is a session of the console, as it is stored: everything but the value of its cookie.
type Session struct {
	RowID     int64  `db:"id"`
	ID        string `db:"public_id"`
	CreatedAt int64  `db:"created_at"`
	ExpiresAt int64  `db:"expires_at"`
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
