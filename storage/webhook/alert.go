package webhook

// Untold is a subscription that failures have disabled, or that is active again, and of which no alert has told the operator.
type Untold struct {
	Subscription int64  `db:"id"`
	Organization int64  `db:"organization_id"`
	DisabledAt   *int64 `db:"disabled_at"` // when failures disabled it; nil: the subscription is active again
}

// AlertSubject is what an alert says about a subscription.
type AlertSubject struct {
	Subscription
	OrganizationName string `db:"organization_name"`
}
