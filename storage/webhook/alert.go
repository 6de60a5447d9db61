package webhook

// Untold is something of which no alert has told the operator.
type Untold struct {
	// Subscription has failed for long, or failures have disabled it, or it is active again. 0 means credentials of the
	// organization that expire.
	Subscription int64  `db:"id"`
	Organization int64  `db:"organization_id"`
	DisabledAt   *int64 `db:"disabled_at"`   // when failures disabled the subscription
	FailingSince int64  `db:"failing_since"` // since when the subscription fails, without being disabled; 0: another reason
	ReadAt       int64  `db:"-"`             // of credentials: notices that began before this time, in milliseconds, are told
}

// AlertSubject is what an alert says about a subscription.
type AlertSubject struct {
	Subscription
	OrganizationName string `db:"organization_name"`
}

// ExpiringCredentials are the credentials of one organization whose end was announced, and of which no alert has told.
type ExpiringCredentials struct {
	Row        int64   `db:"id"` // of the organization
	ID         string  `db:"public_id"`
	ExternalID *string `db:"external_id"`
	Name       string  `db:"name"`
	Keys       int     `db:"keys"`
	Tokens     int     `db:"tokens"`
	FirstAt    int64   `db:"first_at"` // when the first of them ends, in milliseconds
}
