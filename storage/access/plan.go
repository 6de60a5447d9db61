package access

import "github.com/keyhook/keyhook/storage/fault"

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

// CheckSubscriptions refuses one more subscription if the organization already has as many as the plan allows. Faults: Conflict.
func (p Plan) CheckSubscriptions(have int64) error {
	return p.check(have, p.MaxSubscriptions, MostSubscriptions, "max_subscriptions", "subscriptions", "Delete")
}

// CheckKeys refuses one more API key if the organization already has as many live keys as the plan allows. Faults: Conflict.
func (p Plan) CheckKeys(have int64) error {
	return p.check(have, p.MaxAPIKeys, MostAPIKeys, "max_api_keys", "live API keys", "Revoke")
}

// check refuses one more resource of a sort if have reaches the limit in a field of the plan, where nil is most.
func (p Plan) check(have int64, limit *int64, most int64, field, sort, remove string) error {
	switch {
	case limit != nil && have >= *limit:
		return fault.New(fault.Conflict, "limit_reached",
			"The plan %q allows %d %s (%s), and the organization has %d. %s some that are no longer used, or ask an operator for a higher %s (at most %d) or another plan.",
			p.Name, *limit, sort, field, have, remove, field, most)
	case have >= most:
		return fault.New(fault.Conflict, "limit_reached",
			"The plan %q sets no %s, so the limit is %d %s, which no plan can raise. The organization has %d. %s some that are no longer used.",
			p.Name, field, most, sort, have, remove)
	}
	return nil
}

// PlanChange is a partial update of a plan; nil leaves a field as it is. A pointer to nil removes a limit.
type PlanChange struct {
	APIKeys, Webhooks                                                *bool
	RateLimitPerMinute, MaxSubscriptions, MaxAPIKeys, MaxStoredBytes **int64
}

// On returns the plan after the change.
func (c PlanChange) On(p Plan) Plan {
	Set(&p.APIKeys, c.APIKeys)
	Set(&p.Webhooks, c.Webhooks)
	Set(&p.RateLimitPerMinute, c.RateLimitPerMinute)
	Set(&p.MaxSubscriptions, c.MaxSubscriptions)
	Set(&p.MaxAPIKeys, c.MaxAPIKeys)
	Set(&p.MaxStoredBytes, c.MaxStoredBytes)
	return p
}

// Set makes a partial update of a field; nil leaves it as it is.
func Set[T any](field, to *T) {
	if to != nil {
		*field = *to
	}
}

// NullIfEmpty returns a value, or nil if it is the zero value.
func NullIfEmpty[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
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
