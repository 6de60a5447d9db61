package storage

import (
	"context"
	"math"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

const attemptColumns = `
	a.id, s.public_id AS subscription_public_id, d.event_id, e.type AS event_type, e.created_at AS event_at,
	a.attempt_number, a.cause, a.outcome, a.response_status, a.response_body, a.duration_ms, a.error, a.attempted_at,
	a.next_attempt_at`

const attemptJoins = `
	JOIN deliveries d ON d.id = a.delivery_id
	JOIN events e ON e.id = d.event_id
	JOIN subscriptions s ON s.id = a.subscription_id`

// Attempts lists the attempts of a subscription, newest first. The log of a removed subscription can be read until
// retention takes it. Faults: NotFound.
func (s *Store) Attempts(ctx context.Context, organization int64, id string, f webhook.AttemptFilter) ([]webhook.Attempt, error) {
	var row int64
	if err := s.get(ctx, &row, "SELECT id FROM subscriptions WHERE public_id = ? AND organization_id = ?", id, organization); err != nil {
		return nil, missing(err, "subscription")
	}
	query, args, ok := s.attemptQuery(row, f)
	list := []webhook.Attempt{}
	if !ok {
		return list, nil
	}
	err := s.logs.list(ctx, &list, query, args...)
	for i := range list {
		s.nameAttempt(&list[i])
	}
	return list, err
}

// attemptQuery picks the statement for a filter, so that each has an index to walk: by event the event's deliveries, for
// failures the index of failures, else the subscription's log. ok is false where the filter can match nothing.
func (s *Store) attemptQuery(subscription int64, f webhook.AttemptFilter) (query string, args []any, ok bool) {
	until, before := f.Until, f.Before
	if until == 0 {
		until = math.MaxInt64
	}
	beforeAt := f.BeforeAt
	if before == 0 {
		before, beforeAt = math.MaxInt64, math.MaxInt64
	}
	outcome := -1
	if f.Outcome != nil {
		outcome = int(*f.Outcome)
	}
	var event int64
	source, where := "attempts a INDEXED BY attempts_by_subscription", "a.subscription_id = ?1"
	switch {
	case f.EventID != "":
		if event, _, ok = s.ids.row(eventID, f.EventID); !ok {
			return "", nil, false
		}
		source, where = "deliveries own JOIN attempts a ON a.id BETWEEN own.id << 8 AND own.id << 8 | 255", "own.event_id = ?8 AND own.subscription_id = ?1"
	case outcome == int(webhook.Failed) || outcome == int(webhook.Interrupted):
		source, where = "attempts a INDEXED BY attempts_in_trouble", "a.subscription_id = ?1 AND a.outcome IN (2, 3)"
	}
	query = "SELECT " + attemptColumns + " FROM " + source + attemptJoins + ` WHERE ` + where + `
		AND a.attempted_at >= ?2 AND a.attempted_at < ?3
		AND (a.attempted_at, a.id) < (?4, ?5)
		AND (?6 < 0 OR a.outcome = ?6) AND (?7 = '' OR e.type = ?7) AND (?8 = 0 OR d.event_id = ?8)
		ORDER BY a.attempted_at DESC, a.id DESC LIMIT ?9`
	return query, []any{subscription, f.Since, until, beforeAt, before, outcome, f.EventType, event, f.Limit}, true
}

// nameAttempt computes the public ids of an attempt that was read.
func (s *Store) nameAttempt(a *webhook.Attempt) {
	a.ID = s.ids.id(attemptID, a.RowID, a.AttemptedAt)
	a.EventID = s.ids.id(eventID, a.EventRow, a.EventAt)
}

// Attempt returns one attempt by its row id. Faults: NotFound.
func (s *Store) Attempt(ctx context.Context, id int64) (webhook.Attempt, error) {
	var a webhook.Attempt
	if err := s.get(ctx, &a, "SELECT "+attemptColumns+" FROM attempts a"+attemptJoins+" WHERE a.id = ?", id); err != nil {
		return a, missing(err, "attempt")
	}
	s.nameAttempt(&a)
	return a, nil
}

// Redeliver makes a new delivery of the event that an attempt carried. Faults: NotFound.
func (s *Store) Redeliver(ctx context.Context, by access.Actor, organization int64, id, attempt string) error {
	row, at, ok := s.ids.row(attemptID, attempt)
	if !ok {
		return fault.Missing("attempt")
	}
	return s.of(organization).change(ctx, func(t *tx) error {
		sub, err := subscriptionRow(t, organization, id)
		if err != nil {
			return err
		}
		var job webhook.Job
		if err := t.get(&job, `
			SELECT d.subscription_id, d.event_id, e.type AS event_type, e.created_at AS event_at, e.body
			FROM attempts a JOIN deliveries d ON d.id = a.delivery_id JOIN events e ON e.id = d.event_id
			WHERE a.id = ? AND a.attempted_at = ? AND a.subscription_id = ?`, row, at, sub); err != nil {
			return missing(err, "attempt")
		}
		if err := requireWebhooks(t, organization); err != nil {
			return err
		}
		job.EventID, job.DueAt, job.Cause = s.ids.id(eventID, job.Event, job.EventAt), t.now, webhook.ByHand
		job.Delivery, err = t.insert(`
			INSERT INTO deliveries (event_id, subscription_id, state, cause, attempts, due_at) VALUES (?, ?, 0, ?, 0, ?)`,
			job.Event, sub, job.Cause, t.now)
		if err != nil {
			return err
		}
		s.handOver(t, []webhook.Job{job})
		return s.audit(t, by, organization, access.Redelivered, target{"subscription", id, sub}, map[string]any{"event_id": job.EventID})
	})
}
