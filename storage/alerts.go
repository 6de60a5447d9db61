package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The file knows of which outages an alert has told the operator. So a restart repeats no alert, and forgets none.

// alertsName is the row of table instance with the state of the alerts.
const alertsName = "alerts"

// Untold lists up to limit subscriptions that the operator must still hear about: failures have disabled them, or they are active
// again after the operator was told that. A pause by hand needs no alert, because a person did it.
func (s *Store) Untold(ctx context.Context, limit int) (list []webhook.Untold, err error) {
	err = s.pools.reads.List(ctx, &list, `
		SELECT id, organization_id, iif(paused, NULL, disabled_at) AS disabled_at FROM subscriptions INDEXED BY subscriptions_untold
		WHERE iif(paused, NULL, disabled_at) IS NOT told_disabled_at AND deleted_at IS NULL ORDER BY id LIMIT ?`, limit)
	return list, err
}

// AlertSubject returns what an alert says about a subscription.
func (s *Store) AlertSubject(ctx context.Context, row int64) (subject webhook.AlertSubject, err error) {
	err = s.pools.reads.Get(ctx, &subject, `
		SELECT `+history.SubscriptionColumns+`, o.name AS organization_name
		FROM subscriptions s`+history.SubscriptionJoins+` WHERE s.id = ?`, row)
	s.History.Complete(&subject.Subscription, s.Queue.Hold())
	return subject, err
}

// toldPerWrite is how many rows MarkTold changes in one transaction, so that other writes need not wait for it.
const toldPerWrite = 500

// MarkTold stores that the operator was told of these subscriptions. It changes the file in parts. After an error, the first
// parts may be stored.
func (s *Store) MarkTold(ctx context.Context, told []webhook.Untold) error {
	for part := range slices.Chunk(told, toldPerWrite) {
		err := s.change(ctx, sqlite.Work{}, func(t *tx) error {
			for _, sub := range part {
				if _, err := t.Exec("UPDATE subscriptions SET told_disabled_at = ? WHERE id = ?", sub.DisabledAt, sub.Subscription); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("mark alerts as told: %w", err)
		}
	}
	return nil
}

// AlertState reads what SaveAlertState saved into state, a pointer. It leaves state as it is if nothing was saved.
func (s *Store) AlertState(ctx context.Context, state any) error {
	var values [][]byte
	if err := s.pools.reads.List(ctx, &values, "SELECT value FROM instance WHERE name = ?", alertsName); err != nil || len(values) == 0 {
		return err
	}
	if err := json.Unmarshal(values[0], state); err != nil {
		return fmt.Errorf("read state of alerts: %w", err)
	}
	return nil
}

// SaveAlertState saves the state of the alerts as JSON.
func (s *Store) SaveAlertState(ctx context.Context, state any) error {
	text, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode state of alerts: %w", err)
	}
	return s.change(ctx, sqlite.Work{}, func(t *tx) error { return setInstanceValue(t, alertsName, text) })
}
