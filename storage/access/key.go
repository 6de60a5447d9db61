package access

// Status is the status of a key or an access token.
type Status string

// The statuses. A key that is revoked and has expired is Revoked.
const (
	Active  Status = "active"
	Revoked Status = "revoked"
	Expired Status = "expired"
)

// Issued is what API keys and access tokens have in common, as they are stored: everything but the credential itself.
type Issued struct {
	RowID                  int64   `db:"id"`
	ID                     string  `db:"public_id"`
	Organization           int64   `db:"organization_id"` // row id
	OrganizationID         string  `db:"organization_public_id"`
	OrganizationExternalID *string `db:"organization_external_id"`
	Name                   string  `db:"name"`
	CreatedAt              int64   `db:"created_at"`
	ExpiresAt              *int64  `db:"expires_at"`
	LastUsedAt             *int64  `db:"last_used_at"`
	RevokedAt              *int64  `db:"revoked_at"`
}

// Status returns the status at now.
func (i Issued) Status(now int64) Status {
	switch {
	case i.RevokedAt != nil:
		return Revoked
	case i.ExpiresAt != nil && *i.ExpiresAt <= now:
		return Expired
	}
	return Active
}

// Key is an API key.
type Key struct {
	Issued
	CreatedBy  string  `db:"created_by"` // public id of the user whose permissions it uses
	Scope      Scope   `db:"scope"`      // never changes
	KeyPrefix  string  `db:"key_prefix"`
	Window     int64   `db:"window_id"`   // names the rate window; a rotated key shares its predecessor's
	Metadata   string  `db:"metadata"`    // a JSON object; never changes
	ExternalID *string `db:"external_id"` // of the organization's own; a key that has ended keeps it until another key gets it

	AllowedNetworks Networks `db:"allowed_networks"` // from which it may be used; never changes

	// A Principal's key has none of these. The public ids are of the key before and the key after it in a line of rotated keys.
	Replaces         *string `db:"replaces"`
	RotatedTo        *string `db:"rotated_to"`
	OrganizationName string  `db:"organization_name"` // now
	CreatorName      string  `db:"creator_name"`
	CreatorIsService bool    `db:"creator_is_service"`
}

// AccessToken is a user's bearer token in one organization.
type AccessToken struct {
	Issued
	UserID      string `db:"user_public_id"`
	TokenPrefix string `db:"token_prefix"`
}

// NewKey asks for a key. Scope is what the creator requests. The store grants what the creator has, and reads that in the same transaction.
type NewKey struct {
	Credential Credential
	User       string // the id or external id of the member to whom it belongs; empty lets the store decide
	Name       string
	Scope      Scope
	ExpiresAt  *int64
	Metadata   string // a JSON object without white space; "" stands for {}
	ExternalID *string

	AllowedNetworks Networks
}

// Again asks for another key like k, with another credential. User and Scope are empty.
func (k Key) Again(c Credential) NewKey {
	return NewKey{Credential: c, Name: k.Name, ExpiresAt: k.ExpiresAt, Metadata: k.Metadata, ExternalID: k.ExternalID, AllowedNetworks: k.AllowedNetworks}
}

// MaxMetadata is the most bytes of the metadata of a key, without white space between tokens.
const MaxMetadata = 2048

// RotatedKey is a key that replaces another one. NotGranted is the part of the other key's scope that the new key lacks,
// because its creator does not have it.
type RotatedKey struct {
	Key
	NotGranted Scope
}

// KeyFilter selects API keys, newest first. A zero field selects all. Before is the row id at which the page begins.
type KeyFilter struct {
	Before int64
	Limit  int
	Status Status // at the time Now
	Now    int64
	Prefix string // the KeyPrefix
	Unused int64  // not used since this time, in milliseconds; a key that was never used counts from its creation
}
