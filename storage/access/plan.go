package access

// Plan says what an organization may use. A change takes effect on the next request and the next attempt.
type Plan struct {
	RowID              int64  `db:"id"`
	Name               string `db:"name"`
	APIKeys            bool   `db:"api_keys"`
	Webhooks           bool   `db:"webhooks"`
	RateLimitPerMinute *int64 `db:"api_rate_limit_per_minute"` // nil is unlimited; 0 refuses every request
	MaxSubscriptions   *int64 `db:"max_subscriptions"`         // of an organization; nil is MostSubscriptions
	MaxAPIKeys         *int64 `db:"max_api_keys"`              // live ones of an organization; nil is MostAPIKeys
	MaxStoredBytes     *int64 `db:"max_stored_bytes_per_day"`  // that an organization adds in a UTC day; nil is no limit
	CreatedAt          int64  `db:"created_at"`
	UpdatedAt          int64  `db:"updated_at"`
}

// OrganizationRate returns how many requests per minute all API keys of an organization may make together: the limit of one
// key times the number of keys that the organization may have, or once if it may have none. So creating and revoking keys in
// turn gives no more requests. RateLimitPerMinute must be set.
func (p Plan) OrganizationRate() int64 {
	keys := int64(MostAPIKeys)
	if p.MaxAPIKeys != nil {
		keys = max(*p.MaxAPIKeys, 1)
	}
	return *p.RateLimitPerMinute * keys
}

// The most that an organization may have under any plan. Keyhook is measured up to these numbers.
const (
	MostSubscriptions = 5_000
	MostAPIKeys       = 10_000
)

// PlanChange is a partial update of a plan; nil leaves a field as it is. Fields for which nil is a value have a field Set…
// before them, which says whether to change them.
type PlanChange struct {
	APIKeys             *bool
	Webhooks            *bool
	SetRateLimit        bool
	RateLimitPerMinute  *int64
	SetMaxSubscriptions bool
	MaxSubscriptions    *int64
	SetMaxAPIKeys       bool
	MaxAPIKeys          *int64
	SetMaxStoredBytes   bool
	MaxStoredBytes      *int64
}

// SeedPlans lists the plans that a new instance starts with. An operator may edit them.
func SeedPlans() []Plan {
	limit := func(n int64) *int64 { return &n }
	return []Plan{
		{Name: "free", RateLimitPerMinute: limit(60), MaxSubscriptions: limit(0), MaxAPIKeys: limit(0), MaxStoredBytes: limit(100_000_000)},
		{Name: "growth", APIKeys: true, Webhooks: true, RateLimitPerMinute: limit(600), MaxSubscriptions: limit(100), MaxAPIKeys: limit(50),
			MaxStoredBytes: limit(10_000_000_000)},
		{Name: "business", APIKeys: true, Webhooks: true, RateLimitPerMinute: limit(3000), MaxSubscriptions: limit(500), MaxAPIKeys: limit(250),
			MaxStoredBytes: limit(50_000_000_000)},
		{Name: "enterprise", APIKeys: true, Webhooks: true},
	}
}
