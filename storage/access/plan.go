package access

// Plan says what an organization may use. Changing it takes effect on the next request and the next attempt.
type Plan struct {
	RowID              int64  `db:"id"`
	Name               string `db:"name"`
	APIKeys            bool   `db:"api_keys"`
	Webhooks           bool   `db:"webhooks"`
	RateLimitPerMinute *int64 `db:"api_rate_limit_per_minute"` // nil is unlimited; 0 refuses every request
	CreatedAt          int64  `db:"created_at"`
	UpdatedAt          int64  `db:"updated_at"`
}

// PlanChange is a partial update of a plan; nil leaves a field as it is. SetRateLimit says that RateLimitPerMinute is
// meant, because nil is one of its values.
type PlanChange struct {
	APIKeys            *bool
	Webhooks           *bool
	SetRateLimit       bool
	RateLimitPerMinute *int64
}

// SeedPlans lists the plans that a new instance starts with. An operator may edit them.
func SeedPlans() []Plan {
	limit := func(n int64) *int64 { return &n }
	return []Plan{
		{Name: "free", RateLimitPerMinute: limit(60)},
		{Name: "growth", APIKeys: true, Webhooks: true, RateLimitPerMinute: limit(600)},
		{Name: "business", APIKeys: true, Webhooks: true, RateLimitPerMinute: limit(3000)},
		{Name: "enterprise", APIKeys: true, Webhooks: true},
	}
}
