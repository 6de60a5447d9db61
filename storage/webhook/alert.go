package webhook

// Untold is something of which no alert has told the operator.
type Untold struct {
	// Subscription has failed for long, or failures have disabled it, or it is active again. 0 means credentials of the
	// organization that expire, or that were reported as leaked.
	Subscription int64  `db:"id"`
	Organization int64  `db:"organization_id"`
	DisabledAt   *int64 `db:"disabled_at"`   // when failures disabled the subscription
	FailingSince int64  `db:"failing_since"` // since when the subscription fails, without being disabled; 0: another reason
	ReadAt       int64  `db:"-"`             // of credentials: notices and reports before this time, in milliseconds, are told
	Leaked       bool   `db:"-"`             // credentials that were reported as leaked
}

// CredentialNews are the credentials of one organization whose end was announced, or that were reported as leaked, and of which no
// alert has told.
type CredentialNews struct {
	Row        int64   `db:"id"` // of the organization
	ID         string  `db:"public_id"`
	ExternalID *string `db:"external_id"`
	Name       string  `db:"name"`
	Keys       int     `db:"keys"`
	Tokens     int     `db:"tokens"`
	FirstAt    int64   `db:"first_at"` // when the first of them ends or was reported, in milliseconds
	LastAt     int64   `db:"last_at"`  // when the last of them was reported; 0 if they expire
}
