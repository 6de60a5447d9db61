package storage

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/storage/webhook"
)

// subscriptionCache is what the writer remembers of subscriptions from one transaction to the next: who wants what, and who may be
// sent to. Nobody else writes, so it is exact as long as every change of a subscription, or of a plan, forgets what it
// touches, and a rollback forgets all.
type subscriptionCache struct {
	subscribers map[int64]*subscriber
	matching    map[typeOfOrganization][]int64
	matches     int // rows in matching, and one for each type
	hold        *webhook.Hold
	holdKnown   bool // hold is what the file says
}

// What is remembered of each sort at most: some megabytes, whatever types events have and however many want each.
const (
	maxCached  = 10_000
	maxMatches = 200_000
)

// subscriber is a subscription as fan-out, Begin and Record see it.
type subscriber struct {
	webhook.Health
	ID           string `db:"public_id"`
	Organization int64  `db:"organization_id"`
	Host         string `db:"host"`     // of its address, normalized
	Webhooks     bool   `db:"webhooks"` // the plan has them
	Deleted      bool   `db:"deleted"`
	AuditEvents  bool   `db:"audit_events"` // it receives audit events

	// When an attempt last succeeded and failed, as far as that was written. All that shares a transaction shares one
	// time, so it is written once for all.
	successAt, failureAt int64
}

// open reports whether events are fanned out to it and attempts begun.
func (s *subscriber) open() bool { return s.Status != webhook.Disabled && s.Webhooks && !s.Deleted }

// typeOfOrganization is an event type as an organization publishes it.
type typeOfOrganization struct {
	organization int64
	eventType    string
}

// forget drops what is remembered of these subscriptions, or of all where none is named.
func (c *subscriptionCache) forget(subscriptions ...int64) {
	if len(subscriptions) == 0 {
		clear(c.subscribers)
		c.forgetTypes()
		c.holdKnown = false
	}
	for _, row := range subscriptions {
		delete(c.subscribers, row)
	}
}

// forgetTypes drops who wants what.
func (c *subscriptionCache) forgetTypes() {
	clear(c.matching)
	c.matches = 0
}

// subscriber returns a subscription; one that does not exist is closed.
func (t *tx) subscriber(row int64) (*subscriber, error) {
	if s, ok := t.cache.subscribers[row]; ok {
		return s, nil
	}
	s := new(subscriber)
	err := t.Get(s, `
		SELECT s.public_id, s.organization_id, s.status, s.consecutive_failures, s.last_error, s.epoch, s.probe_at,
		       s.url AS host, p.webhooks, s.deleted_at IS NOT NULL AS deleted, s.audit_events
		FROM subscriptions s JOIN organizations o ON o.id = s.organization_id JOIN plans p ON p.id = o.plan_id
		WHERE s.id = ?`, row)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return &subscriber{Deleted: true}, nil
	case err != nil:
		return nil, fmt.Errorf("read subscription: %w", err)
	}
	s.Host = normalHost(s.Host)
	if len(t.cache.subscribers) >= maxCached {
		clear(t.cache.subscribers)
	}
	t.cache.subscribers[row] = s
	return s, nil
}

// matching returns the subscriptions of an organization that want a type, open or not. No pattern of a subscription covers
// another of its own, so each is found once.
func (t *tx) matching(organization int64, eventType string) ([]int64, error) {
	w := typeOfOrganization{organization, eventType}
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
	// Few lengths occur, so all of these statements stay prepared.
	if err := t.List(&rows, `
		SELECT subscription_id FROM subscription_patterns
		WHERE organization_id = ? AND pattern IN (?`+strings.Repeat(", ?", len(patterns)-1)+`)`, args...); err != nil {
		return nil, fmt.Errorf("find subscriptions: %w", err)
	}
	if len(t.cache.matching) >= maxCached || t.cache.matches+len(rows) >= maxMatches {
		t.cache.forgetTypes()
	}
	t.cache.matching[w] = rows
	t.cache.matches += 1 + len(rows)
	return rows, nil
}
