package retention

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// A closed organization keeps only rows without personal data: its own row, its keys and tokens without names, its subscriptions
// without URLs, its counts, and its audit log without details. Its events are deleted with their deliveries and attempts.

// cleanOrganization removes the data of a closed organization. complete is false if attempts are in progress, whose records stay
// until they end.
func (c *Cleaner) cleanOrganization(ctx context.Context, organization int64) (complete bool, err error) {
	if err := c.o.Directory.EndOrganization(ctx, organization); err != nil {
		return false, err
	}
	if err := c.removeSubscriptions(ctx, organization); err != nil {
		return false, fmt.Errorf("subscriptions: %w", err)
	}
	if err := c.deleteEventsOf(ctx, organization); err != nil {
		return false, fmt.Errorf("events: %w", err)
	}
	if err := c.cleanAuditOf(ctx, organization); err != nil {
		return false, fmt.Errorf("audit events: %w", err)
	}
	var left bool
	if err := c.o.Reads.Get(ctx, &left, "SELECT EXISTS (SELECT 1 FROM events WHERE organization_id = ?)", organization); err != nil || left {
		return false, err
	}
	return true, c.o.Directory.OrganizationCleaned(ctx, organization)
}

// subscriptionBatch limits the subscriptions that one transaction removes.
const subscriptionBatch = 50

// removeSubscriptions removes the subscriptions of a closed organization, and what its owner wrote about each.
func (c *Cleaner) removeSubscriptions(ctx context.Context, organization int64) error {
	type row struct {
		RowID   int64 `db:"id"`
		Deleted bool  `db:"deleted"`
		webhook.Health
	}
	work := sqlite.Work{Payer: organization, Cost: subscriptionBatch}
	return scan.Rows(ctx, func(after int64) (last int64, err error) {
		return sqlite.Returning(ctx, c.o.File, work, func(t *sqlite.Tx) (last int64, err error) {
			subscriptions, err := sqlite.All[row](t, `
				SELECT id, status, consecutive_failures, last_error, epoch, failing_since, probe_at, paused, deleted_at IS NOT NULL AS deleted
				FROM subscriptions WHERE organization_id = ? AND id > ? ORDER BY id LIMIT ?`, organization, after, subscriptionBatch)
			for _, sub := range subscriptions {
				if !sub.Deleted {
					if err := c.o.Subscriptions.Remove(t, organization, sub.RowID, sub.Health); err != nil {
						return 0, err
					}
				}
				if err := t.Exec(`
					UPDATE subscriptions SET url = '', description = '', event_types = '', filter = NULL, recover_since = NULL, last_error = CASE last_error WHEN '' THEN '' ELSE ? END
					WHERE id = ?`, audit.ErasedText, sub.RowID); err != nil {
					return 0, err
				}
				last = sub.RowID
			}
			return last, err
		})
	})
}

// deleteEventsOf deletes the events of a closed organization with their deliveries and attempts, except those with an attempt in progress.
func (c *Cleaner) deleteEventsOf(ctx context.Context, organization int64) error {
	var done eventProgress
	return scan.Batches(ctx, 0, func() (more bool, err error) {
		after := done.after // the writer may still read it when ctx ends, and done changes then
		if done, err = sqlite.Returning(ctx, c.o.File, sqlite.Work{Payer: organization, Cost: eventBatch + deliveryBatch}, func(t *sqlite.Tx) (eventProgress, error) {
			return c.deleteEventBatchOf(t, organization, after)
		}); err != nil || !done.more {
			return false, err
		}
		return true, c.vacuum(ctx)
	})
}

// deleteEventBatchOf deletes the next events of an organization after a row.
func (c *Cleaner) deleteEventBatchOf(t *sqlite.Tx, organization, after int64) (eventProgress, error) {
	var rows []int64
	if err := t.List(&rows, "SELECT id FROM events INDEXED BY events_by_organization WHERE organization_id = ? AND id > ? ORDER BY id LIMIT ?",
		organization, after, eventBatch); err != nil || len(rows) == 0 {
		return eventProgress{after: after}, err
	}
	last, err := lastWithFewDeliveries(t, rows)
	if err != nil {
		return eventProgress{}, err
	}
	rows = rows[:slices.Index(rows, last)+1]
	events := []oldEvent{}
	if err := t.List(&events, `
		SELECT e.id, EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.state >= `+delivery.Sending+`) AS waiting
		FROM json_each(?) j CROSS JOIN events e ON e.id = j.value`, sqlite.RowList(slices.Values(rows))); err != nil {
		return eventProgress{}, err
	}
	complete, err := c.deleteEvents(t, events)
	if err != nil || !complete {
		return eventProgress{after, true}, err
	}
	return eventProgress{last, true}, nil
}

// cleanAuditOf removes from the audit log of a closed organization what people wrote, and their names and addresses.
func (c *Cleaner) cleanAuditOf(ctx context.Context, organization int64) error {
	return scan.Rows(ctx, func(after int64) (last int64, err error) {
		return sqlite.Returning(ctx, c.o.File, sqlite.Work{Payer: organization, Cost: auditBatch}, func(t *sqlite.Tx) (last int64, err error) {
			if err := t.Get(&last, `
				SELECT coalesce(max(id), 0) FROM (
					SELECT id FROM audit_events INDEXED BY audit_events_by_organization WHERE organization_id = ? AND id > ? ORDER BY id LIMIT ?)`,
				organization, after, auditBatch); err != nil || last == 0 {
				return 0, err
			}
			return last, t.Exec(`
				UPDATE audit_events INDEXED BY audit_events_by_organization SET
					actor_name = CASE actor_type WHEN 'system' THEN actor_name ELSE ?4 END, ip = '', details = '{}'
				WHERE organization_id = ?1 AND id > ?2 AND id <= ?3 AND type <> ?5`,
				organization, after, last, audit.ErasedText, access.OrganizationClosed)
		})
	})
}
