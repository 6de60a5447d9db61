package access

// The names that replace the names of users and organizations that have left.
const (
	ErasedUserName         = "erased user"
	ClosedOrganizationName = "closed organization"
)

// Erasure is the erasure of a user, and what it ends.
type Erasure struct {
	ID           string // of the user
	ErasedAt     *int64 // nil if this is a preview
	Complete     bool   // the last copy of the personal data is removed
	APIKeys      int64  `db:"api_keys"` // active keys of the user, in all organizations
	AccessTokens int64  `db:"access_tokens"`
	Memberships  int64  `db:"memberships"`
}

// Closure is the closure of an organization, and what it ends.
type Closure struct {
	ID                string // of the organization
	ClosedAt          *int64 // nil if this is a preview
	Complete          bool   // the last data of the organization is removed
	APIKeys           int64  `db:"api_keys"` // active ones
	AccessTokens      int64  `db:"access_tokens"`
	Members           int64  `db:"members"`
	Subscriptions     int64
	PendingDeliveries int64
}
