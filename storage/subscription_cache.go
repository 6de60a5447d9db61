package storage

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/keyhook/keyhook/storage/webhook"
)

// subscriptionCache is the writer's memory of subscriptions, from one transaction to the next: who wants which events,
// and where attempts may begin. Nobody else writes. So it is exact if every change of a subscription or plan
// invalidates its entries, and a rollback invalidates everything.
type subscriptionCache struct {
	subscriptions map[int64]*cachedSubscription
	matching      map[eventTypeKey][]int64
	matches       int // rows in matching, plus one for each type
	hold          *webhook.Hold
	holdLoaded    bool // hold is the value in the file
}

// The limits of the cache: some megabytes, for any number of types and subscriptions.
const (
	maxCached        = 10_000
	maxCachedMatches = 200_000
)

// cachedSubscription has the columns of a subscription that fan-out, Begin and Record need.
type cachedSubscription struct {
	webhook.Health
	ID           string `db:"public_id"`
	Organization int64  `db:"organization_id"`
	Host         string `db:"host"`         // of the URL, normalized
	Webhooks     bool   `db:"webhooks"`     // the plan has webhooks
	Deleted      bool   `db:"deleted"`      // the subscription is deleted, or its organization is closed
	AuditEvents  bool   `db:"audit_events"` // the subscription receives audit events
	Ordered      bool   `db:"ordered"`

	// The stored times of the last success and failure. All writes of a transaction share one time, so it is written once
	// for all of them.
	successAt, failureAt int64
}

// receives reports whether the subscription gets new deliveries. Those of a disabled one wait.
func (s *cachedSubscription) receives() bool { return s.Webhooks && !s.Deleted }

// open reports whether attempts may begin.
func (s *cachedSubscription) open() bool { return s.receives() && s.Status != webhook.Disabled }

// eventTypeKey is an event type of one organization.
type eventTypeKey struct {
	organization int64
	eventType    string
}

// invalidate removes these subscriptions from the cache. Without arguments it removes everything.
func (c *subscriptionCache) invalidate(subscriptions ...int64) {
	if len(subscriptions) == 0 {
		clear(c.subscriptions)
		c.invalidateTypes()
		c.holdLoaded = false
	}
	for _, row := range subscriptions {
		delete(c.subscriptions, row)
	}
}

// invalidateTypes removes the lists of subscriptions by event type.
func (c *subscriptionCache) invalidateTypes() {
	clear(c.matching)
	c.matches = 0
}

// cachedSubscription returns a subscription. One that does not exist counts as deleted.
func (t *tx) cachedSubscription(row int64) (*cachedSubscription, error) {
	if s, ok := t.cache.subscriptions[row]; ok {
		return s, nil
	}
	s := new(cachedSubscription)
	err := t.Get(s, `
		SELECT s.public_id, s.organization_id, s.status, s.consecutive_failures, s.last_error, s.epoch, s.failing_since, s.probe_at, s.paused,
		       s.url AS host, p.webhooks,
		       s.deleted_at IS NOT NULL OR o.closed_at IS NOT NULL AS deleted, s.audit_events, s.ordered
		FROM subscriptions s JOIN organizations o ON o.id = s.organization_id JOIN plans p ON p.id = o.plan_id
		WHERE s.id = ?`, row)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return &cachedSubscription{Deleted: true}, nil
	case err != nil:
		return nil, fmt.Errorf("read subscription: %w", err)
	}
	s.Host = normalHost(s.Host)
	if len(t.cache.subscriptions) >= maxCached {
		clear(t.cache.subscriptions)
	}
	t.cache.subscriptions[row] = s
	return s, nil
}

// matching returns the subscriptions of an organization to an event type, whether open or not. The patterns of one
// subscription do not overlap, so each subscription is in the list once.
func (t *tx) matching(organization int64, eventType string) ([]int64, error) {
	w := eventTypeKey{organization, eventType}
	if rows, ok := t.cache.matching[w]; ok {
		return rows, nil
	}
	patterns := webhook.TypePatterns(eventType)
	args := make([]any, 0, len(patterns)+1)
	args = append(args, organization)
	for _, p := range patterns {
		args = append(args, p)
	}
	rows := []int64{}
	// The number of patterns varies little, so all of these statements stay prepared.
	if err := t.List(&rows, `
		SELECT subscription_id FROM subscription_patterns
		WHERE organization_id = ? AND pattern IN (?`+strings.Repeat(", ?", len(patterns)-1)+`)`, args...); err != nil {
		return nil, fmt.Errorf("find subscriptions: %w", err)
	}
	if len(t.cache.matching) >= maxCached || t.cache.matches+len(rows) >= maxCachedMatches {
		t.cache.invalidateTypes()
	}
	t.cache.matching[w] = rows
	t.cache.matches += 1 + len(rows)
	return rows, nil
}

// normalHost returns the host of a URL in lower case, without port and final dot.
func normalHost(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
}
