package access

// KeepUsage is how many days usage is kept, before the present day.
const KeepUsage = 400

// KeyUse counts the requests of an API key by what the checks of the key decided.
type KeyUse struct {
	Allowed     int64 `db:"allowed"`
	RateLimited int64 `db:"rate_limited"` // 429
	Forbidden   int64 `db:"forbidden"`    // 403
}

// Add adds other counts.
func (u *KeyUse) Add(o KeyUse) {
	u.Allowed += o.Allowed
	u.RateLimited += o.RateLimited
	u.Forbidden += o.Forbidden
}

// OrganizationUse counts what an organization has published and stored, and how its deliveries ended. Test deliveries do not count.
type OrganizationUse struct {
	StoredBytes int64 `db:"stored_bytes"` // an estimate
	Events      int64 `db:"events"`       // without those that publish the audit log
	Succeeded   int64 `db:"succeeded"`    // deliveries
	Failed      int64 `db:"failed"`       // deliveries that were given up after their last attempt
}

// Add adds other counts.
func (u *OrganizationUse) Add(o OrganizationUse) {
	u.StoredBytes += o.StoredBytes
	u.Events += o.Events
	u.Succeeded += o.Succeeded
	u.Failed += o.Failed
}

// Usage is the usage of an API key or of an organization in one period.
type Usage struct {
	Row                    int64   `db:"id"`  // of the key or the organization
	Day                    int64   `db:"day"` // the first day of the period, in days since the epoch
	ID                     string  `db:"public_id"`
	Name                   string  `db:"name"`
	OrganizationID         string  `db:"organization_public_id"`
	OrganizationExternalID *string `db:"organization_external_id"`
	KeyUse
	OrganizationUse
}

// UsageFilter selects usage: of the newest key or organization first, and of each one the newest period first.
type UsageFilter struct {
	Since, Until int64         // in days since the epoch; Until is exclusive
	ByMonth      bool          // a period is a month, otherwise a day
	Key          int64         // row id of the only key; 0 is every key
	After        UsagePosition // where the page begins; the zero value is the start of the list
	Limit        int
}

// UsagePosition is a place in a list of usage: after a day of a key or an organization.
type UsagePosition struct{ Row, Day int64 }

// UsagePage is a part of a list of usage. If more may follow, Next is where the next page begins; otherwise it is zero. A page that is not
// full may be followed by more, if the search reached its limit of rows.
type UsagePage struct {
	Rows []Usage
	Next UsagePosition
}
