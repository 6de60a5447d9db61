package storage

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/instance"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The file knows of which outages an alert has told the operator. So a restart repeats no alert, and forgets none.

// alertsName is the row of table instance with the state of the alerts.
const alertsName = "alerts"

// Untold lists up to limit subscriptions that the operator must still hear about: failures have disabled them, they are active
// again after the operator was told that, or they have failed since failingBefore, in milliseconds, without being disabled. A pause by
// hand needs no alert, because a person did it. It does not end an outage that was told either: that is told after the pause.
func (s *Store) Untold(ctx context.Context, failingBefore int64, limit int) (list []webhook.Untold, err error) {
	err = s.pools.reads.List(ctx, &list, `
		SELECT ?2 AS concern, id, organization_id, disabled_at, 0 AS failing_since
		FROM subscriptions INDEXED BY subscriptions_untold
		WHERE iif(paused, NULL, disabled_at) IS NOT told_disabled_at AND deleted_at IS NULL AND NOT paused
		UNION ALL
		SELECT ?3, id, organization_id, NULL, failing_since FROM subscriptions INDEXED BY subscriptions_untold_failing
		WHERE status = 'failing' AND failing_since IS NOT told_failing_since AND deleted_at IS NULL AND failing_since <= ?1
		LIMIT ?4`, failingBefore, webhook.Outage, webhook.LongFailure, limit)
	return list, err
}

// expiryPause is the time between two alerts about the credentials of one organization, in milliseconds.
const expiryPause = 24 * 3600 * 1000

// Expiring lists up to limit organizations with credentials that end soon and that no alert has told of. It leaves out organizations of
// which an alert told within a day before now, in milliseconds.
func (s *Store) Expiring(ctx context.Context, now int64, limit int) (list []webhook.CredentialNews, err error) {
	err = s.pools.reads.List(ctx, &list, `
		SELECT o.id, o.public_id, o.external_id, o.name, sum(c.is_key) AS keys, sum(NOT c.is_key) AS tokens, min(c.expires_at) AS first_at
		FROM (
			SELECT organization_id, expires_at, 1 AS is_key FROM api_keys INDEXED BY api_keys_untold
			WHERE noticed_at IS NOT told_noticed_at AND revoked_at IS NULL AND expires_at > ?1
			  AND NOT EXISTS (SELECT 1 FROM api_keys n WHERE n.replaces = api_keys.id)
			UNION ALL
			SELECT organization_id, expires_at, 0 FROM access_tokens INDEXED BY access_tokens_untold
			WHERE noticed_at IS NOT told_noticed_at AND revoked_at IS NULL AND expires_at > ?1
		) c CROSS JOIN organizations o ON o.id = c.organization_id
		WHERE coalesce(o.told_expiry_at NOT BETWEEN ?1 - ?2 + 1 AND ?1, true)
		GROUP BY o.id ORDER BY first_at LIMIT ?3`, now, expiryPause, limit)
	return list, err
}

// Leaked lists up to limit organizations with credentials that were reported as leaked before now, in milliseconds, and that no alert has
// told of. A report from the future was made while the clock was ahead, so it counts.
func (s *Store) Leaked(ctx context.Context, now int64, limit int) (list []webhook.CredentialNews, err error) {
	err = s.pools.reads.List(ctx, &list, `
		SELECT o.id, o.public_id, o.external_id, o.name, sum(c.is_key) AS keys, sum(NOT c.is_key) AS tokens,
		       min(c.leaked_at) AS first_at, max(c.leaked_at) AS last_at
		FROM (
			SELECT organization_id, leaked_at, 1 AS is_key FROM api_keys INDEXED BY api_keys_leaked WHERE leaked_at IS NOT NULL AND leaked_at NOT BETWEEN ?1 AND ?1 + ?3
			UNION ALL
			SELECT organization_id, leaked_at, 0 FROM access_tokens INDEXED BY access_tokens_leaked WHERE leaked_at IS NOT NULL AND leaked_at NOT BETWEEN ?1 AND ?1 + ?3
		) c CROSS JOIN organizations o ON o.id = c.organization_id
		GROUP BY o.id ORDER BY first_at LIMIT ?2`, now, limit, clock.Tolerance.Milliseconds())
	return list, err
}

// AlertSubject returns a subscription that an alert is about.
func (s *Store) AlertSubject(ctx context.Context, row int64) (sub webhook.Subscription, err error) {
	err = s.pools.reads.Get(ctx, &sub, `
		SELECT `+history.SubscriptionColumns+`
		FROM subscriptions s`+history.SubscriptionJoins+` WHERE s.id = ?`, row)
	s.History.Complete(&sub, s.Queue.Hold())
	return sub, err
}

// toldPerWrite is how many rows MarkTold changes in one transaction, so that other writes need not wait for it.
const toldPerWrite = 500

// MarkTold stores that the operator was told. It changes the file in parts. After an error, the first parts may be stored.
func (s *Store) MarkTold(ctx context.Context, told []webhook.Untold) error {
	for part := range slices.Chunk(told, toldPerWrite) {
		err := s.File.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
			for _, sub := range part {
				if err := markTold(t, sub); err != nil {
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

func markTold(t *sqlite.Tx, of webhook.Untold) error {
	switch of.Concern {
	case webhook.LongFailure:
		return t.Exec("UPDATE subscriptions SET told_failing_since = ? WHERE id = ?", of.FailingSince, of.Subscription)
	case webhook.Outage:
		return t.Exec("UPDATE subscriptions SET told_disabled_at = ? WHERE id = ?", of.DisabledAt, of.Subscription)
	}
	told := " SET told_noticed_at = noticed_at WHERE organization_id = ?1 AND noticed_at IS NOT told_noticed_at AND revoked_at IS NULL AND noticed_at < ?2"
	args := []any{of.Organization, of.ReadAt}
	if of.Concern == webhook.Leak {
		told = " SET leaked_at = NULL WHERE organization_id = ?1 AND leaked_at IS NOT NULL AND leaked_at NOT BETWEEN ?2 AND ?3"
		args = append(args, t.Now()+clock.Tolerance.Milliseconds())
	}
	for _, table := range []string{"api_keys", "access_tokens"} {
		if err := t.Exec("UPDATE "+table+told, args...); err != nil {
			return err
		}
	}
	if of.Concern == webhook.Leak {
		return nil
	}
	return t.Exec("UPDATE organizations SET told_expiry_at = ? WHERE id = ?", t.Now(), of.Organization)
}

// AlertState reads what SaveAlertState saved into state, a pointer. It leaves state as it is if nothing was saved.
func (s *Store) AlertState(ctx context.Context, state any) error {
	_, err := instance.Load(s.pools.reads.In(ctx), alertsName, state)
	return err
}

// SaveAlertState saves the state of the alerts as JSON.
func (s *Store) SaveAlertState(ctx context.Context, state any) error {
	return s.File.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error { return instance.Save(t, alertsName, state) })
}
