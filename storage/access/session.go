package access

import (
	"crypto/rand"
	"encoding/base64"
)

// sessionBytes is how much of crypto/rand the cookie of a session holds.
const sessionBytes = 32

// Session is a session of the console, as it is kept: everything but what its cookie holds.
type Session struct {
	RowID     int64  `db:"id"`
	ID        string `db:"public_id"`
	CreatedAt int64  `db:"created_at"`
	ExpiresAt int64  `db:"expires_at"`
}

// MintSession makes what the cookie of a session holds: 256 bits of crypto/rand, which cannot fail.
func MintSession() Credential {
	var b [sessionBytes]byte
	rand.Read(b[:])
	return credential(base64.RawURLEncoding.EncodeToString(b[:]))
}

// ParseSession reads what a cookie holds. ok is false where MintSession cannot have made it.
func ParseSession(raw string) (c Credential, ok bool) {
	if len(raw) != base64.RawURLEncoding.EncodedLen(sessionBytes) {
		return Credential{}, false
	}
	if _, err := base64.RawURLEncoding.Strict().DecodeString(raw); err != nil {
		return Credential{}, false
	}
	return credential(raw), true
}
