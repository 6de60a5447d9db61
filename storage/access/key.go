package access

// Status is where a key or an access token stands in its life.
type Status string

// The states of a key. Revoked wins over expired.
const (
	Active  Status = "active"
	Revoked Status = "revoked"
	Expired Status = "expired"
)

// Key is an API key as it is kept: everything but the key itself.
type Key struct {
	RowID          int64  `db:"id"`
	ID             string `db:"public_id"`
	OrganizationID string `db:"organization_public_id"`
	CreatedBy      string `db:"created_by"` // the public id of the user that it acts as
	Name           string `db:"name"`
	Scope          Scope  `db:"scope"` // fixed for life
	KeyPrefix      string `db:"key_prefix"`
	Window         int64  `db:"window_id"` // names the rate window; a rotated key shares its predecessor's
	CreatedAt      int64  `db:"created_at"`
	ExpiresAt      *int64 `db:"expires_at"`
	LastUsedAt     *int64 `db:"last_used_at"`
	RevokedAt      *int64 `db:"revoked_at"`

	// The public ids of its neighbours in a line of rotated keys. Of the key of a Principal they are not read.
	Replaces  *string `db:"replaces"`
	RotatedTo *string `db:"rotated_to"`
}

// Status returns where the key stands at now.
func (k Key) Status(now int64) Status { return status(k.RevokedAt, k.ExpiresAt, now) }

// AccessToken is a user's bearer token in one organization, as it is kept: everything but the token itself.
type AccessToken struct {
	RowID          int64  `db:"id"`
	ID             string `db:"public_id"`
	UserID         string `db:"user_public_id"`
	OrganizationID string `db:"organization_public_id"`
	Name           string `db:"name"`
	TokenPrefix    string `db:"token_prefix"`
	CreatedAt      int64  `db:"created_at"`
	ExpiresAt      *int64 `db:"expires_at"`
	LastUsedAt     *int64 `db:"last_used_at"`
	RevokedAt      *int64 `db:"revoked_at"`
}

// Status returns where the token stands at now.
func (t AccessToken) Status(now int64) Status { return status(t.RevokedAt, t.ExpiresAt, now) }

func status(revokedAt, expiresAt *int64, now int64) Status {
	switch {
	case revokedAt != nil:
		return Revoked
	case expiresAt != nil && *expiresAt <= now:
		return Expired
	}
	return Active
}

// NewKey asks for a key. Scope is what is requested; what is granted is for the store to say, in one transaction with
// the look-up of what the creator holds.
type NewKey struct {
	Credential Credential
	Name       string
	Scope      Scope
	ExpiresAt  *int64
}

// RotatedKey is the key that takes the place of another one. NotGranted is what the other's scope has and its own has
// not: what its creator does not hold.
type RotatedKey struct {
	Key
	NotGranted Scope
}
