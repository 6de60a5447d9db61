package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// The personal data of a user is in the row of the user, and copies of it are in the history: the name of the actor in audit
// events, the details of audit events about the user, the events that published both, and the responses of receivers to those. Texts
// that people write elsewhere, such as the names of API keys or the data of events, belong to the organization.

// UserErased is called in the transaction that erases a user, while the memberships are still there. It removes the name from the
// subscriptions that are paused. For other organizations and earlier names, the audit log says which these are; see cleanAuditBatch.
func (c *Cleaner) UserErased(t *sqlite.Tx, was access.User) error {
	c.CleanAfter(t)
	return c.renamePaused(t, `
		UPDATE subscriptions INDEXED BY subscriptions_paused SET last_error = ?1
		WHERE paused = 1 AND last_error = ?2 AND organization_id IN (SELECT organization_id FROM memberships WHERE user_id = ?3) RETURNING id`,
		webhook.DeactivatedBy+access.ErasedUserName, webhook.DeactivatedBy+was.Name, was.RowID)
}

// renamePaused changes the last error of some subscriptions. The statement returns their row ids.
func (c *Cleaner) renamePaused(t *sqlite.Tx, statement string, args ...any) error {
	var rows []int64
	err := t.ExecList(&rows, statement, args...)
	c.o.Queue.SubscriptionsChanged(t, rows...)
	return err
}

// cleanUsers removes the copies of the personal data of erased users. One pass over the history removes those of all. If it fails, each
// half of them gets a pass of its own, so that a user who cannot be cleaned does not stop the others.
func (c *Cleaner) cleanUsers(ctx context.Context, users []access.User) error {
	err := c.cleanTogether(ctx, users)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case len(users) == 1:
		return c.tell(ctx, "cannot remove the data of an erased user", err, "user", users[0].ID)
	}
	return errors.Join(c.cleanUsers(ctx, users[:len(users)/2]), c.cleanUsers(ctx, users[len(users)/2:]))
}

// cleanTogether is cleanUsers with one pass over the history.
func (c *Cleaner) cleanTogether(ctx context.Context, users []access.User) error {
	var erased audit.ErasedUsers
	for _, u := range users {
		erased = append(erased, u.ID)
		if err := c.o.Directory.EndUser(ctx, u.RowID); err != nil {
			return err
		}
	}
	if err := c.cleanAuditEvents(ctx, erased); err != nil {
		return fmt.Errorf("audit events: %w", err)
	}
	if err := c.cleanPublished(ctx, erased); err != nil {
		return fmt.Errorf("events: %w", err)
	}
	if err := c.vacuum(ctx); err != nil {
		return err
	}
	for _, u := range users {
		if err := c.o.Directory.UserCleaned(ctx, u.RowID); err != nil {
			return err
		}
		c.o.Logger.Info("the erasure of a user is complete", "user", u.ID)
	}
	return nil
}

const (
	// auditSlice and eventSlice are how many rows one read looks at.
	auditSlice = 2_000
	eventSlice = 5_000
	// cleanBatch limits the rows that one transaction rewrites.
	cleanBatch = 200
)

// auditRow is an audit event as far as it can have personal data.
type auditRow struct {
	RowID      int64  `db:"id"`
	Type       string `db:"type"`
	ActorType  string `db:"actor_type"`
	ActorID    string `db:"actor_id"`
	ActorName  string `db:"actor_name"`
	TargetType string `db:"target_type"`
	TargetID   string `db:"target_id"`
	Details    string `db:"details"`
}

// cleanAuditEvents removes personal data from the audit log.
func (c *Cleaner) cleanAuditEvents(ctx context.Context, erased audit.ErasedUsers) error {
	return scan.Rows(ctx, func(after int64) (last int64, err error) {
		if err := c.o.Logs.Get(ctx, &last, "SELECT coalesce(max(id), 0) FROM (SELECT id FROM audit_events WHERE id > ? ORDER BY id LIMIT ?)",
			after, auditSlice); err != nil || last == 0 {
			return 0, err
		}
		var events []auditRow
		if err := c.o.Logs.List(ctx, &events, `
			SELECT a.id, a.type, a.actor_type, a.actor_id, a.actor_name, a.target_type, a.target_id, a.details FROM audit_events a
			WHERE a.id > ?1 AND a.id <= ?2
			  AND EXISTS (SELECT 1 FROM json_each(?3) j WHERE j.value IN (a.actor_id, a.target_id) OR instr(a.details, j.value))`,
			after, last, sqlite.TextList(erased)); err != nil {
			return 0, err
		}
		for batch := range slices.Chunk(events, cleanBatch) {
			if err := c.change(ctx, func(t *sqlite.Tx) error { return c.cleanAuditBatch(t, erased, batch) }); err != nil {
				return 0, err
			}
		}
		return last, nil
	})
}

func (c *Cleaner) cleanAuditBatch(t *sqlite.Tx, erased audit.ErasedUsers, events []auditRow) error {
	for _, event := range events {
		byErased := event.ActorType == "user" && slices.Contains(erased, event.ActorID)
		about := audit.Target{Type: event.TargetType, ID: event.TargetID}
		details, err := erased.CleanDetails([]byte(event.Details), event.Type, byErased, about)
		if err != nil {
			return fmt.Errorf("audit event %d: %w", event.RowID, err)
		}
		if byErased && (event.Type == access.SubscriptionDisabled || event.Type == access.SubscriptionCreated) { // its last error may have the name of that time
			if err := c.renamePaused(t, "UPDATE subscriptions SET last_error = ? WHERE public_id = ? AND paused = 1 AND last_error = ? RETURNING id",
				webhook.DeactivatedBy+access.ErasedUserName, about.ID, webhook.DeactivatedBy+event.ActorName); err != nil {
				return err
			}
		}
		if err := t.Exec("UPDATE audit_events SET actor_name = iif(?1, ?2, actor_name), ip = iif(?1, '', ip), details = ?3 WHERE id = ?4",
			byErased, access.ErasedUserName, string(details), event.RowID); err != nil {
			return err
		}
	}
	return nil
}

type publishedAudit struct {
	RowID        int64  `db:"id"`
	Type         string `db:"type"`
	At           int64  `db:"created_at"`
	Organization string `db:"organization_public_id"`
	Body         []byte `db:"body"`
}

// cleanPublished removes personal data from the events that publish audit events. It replaces their bodies as a whole, so later
// attempts send the new body with a new signature.
func (c *Cleaner) cleanPublished(ctx context.Context, erased audit.ErasedUsers) error {
	types := sqlite.TextList(access.AuditTypes())
	return scan.Rows(ctx, func(after int64) (last int64, err error) {
		if err := c.o.Logs.Get(ctx, &last, "SELECT coalesce(max(id), 0) FROM (SELECT id FROM events WHERE id > ? ORDER BY id LIMIT ?)",
			after, eventSlice); err != nil || last == 0 {
			return 0, err
		}
		var events []publishedAudit
		if err := c.o.Logs.List(ctx, &events, `
			SELECT e.id, e.type, e.created_at, o.public_id AS organization_public_id, e.body
			FROM events e CROSS JOIN organizations o ON o.id = e.organization_id
			WHERE e.id > ?1 AND e.id <= ?2 AND e.type IN (SELECT value FROM json_each(?3))
			  AND EXISTS (SELECT 1 FROM json_each(?4) j WHERE instr(e.body, CAST(j.value AS BLOB)))`,
			after, last, types, sqlite.TextList(erased)); err != nil {
			return 0, err
		}
		for batch := range slices.Chunk(events, cleanBatch) {
			if err := c.cleanPublishedBatch(ctx, erased, batch); err != nil {
				return 0, err
			}
		}
		return last, nil
	})
}

// cleanPublishedBatch replaces the bodies of events, and deletes the responses to the old ones.
func (c *Cleaner) cleanPublishedBatch(ctx context.Context, erased audit.ErasedUsers, events []publishedAudit) error {
	at, err := sqlite.Returning(ctx, c.o.File, sqlite.Work{Cost: len(events)}, func(t *sqlite.Tx) (int64, error) {
		rows := make([]int64, len(events))
		for i, e := range events {
			rows[i] = e.RowID
			body, err := c.cleanBody(erased, e)
			if err != nil {
				return 0, fmt.Errorf("event %d: %w", e.RowID, err)
			}
			if err := t.Exec("UPDATE events SET body = ? WHERE id = ?", body, e.RowID); err != nil {
				return 0, err
			}
		}
		c.o.Queue.BodiesChanged(t, rows)
		return t.Now(), nil
	})
	for i := 0; i < len(events) && err == nil; i++ {
		err = c.deleteResponses(ctx, events[i].RowID, at)
	}
	return err
}

func (c *Cleaner) cleanBody(erased audit.ErasedUsers, e publishedAudit) ([]byte, error) {
	var body struct{ Data audit.Data }
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	if err := erased.CleanData(&body.Data, e.Type); err != nil {
		return nil, err
	}
	data, err := json.Marshal(body.Data)
	if err != nil {
		return nil, err
	}
	return webhook.AppendEnvelope(nil, c.o.IDs.ID(access.EventID, e.RowID, e.At), e.Type, e.At, e.Organization, data, 0), nil
}

// deleteResponses deletes the responses of receivers to an event whose body was replaced at that time. It waits for the attempts in
// progress that had begun before: they may have sent the old body. None of them takes longer than its timeout.
func (c *Cleaner) deleteResponses(ctx context.Context, event, replacedAt int64) error {
	return scan.Rows(ctx, func(after int64) (last int64, err error) {
		var deliveries []int64
		if err := c.o.Logs.List(ctx, &deliveries, "SELECT id FROM deliveries WHERE event_id = ? AND id > ? ORDER BY id LIMIT ?", event, after, cleanBatch); err != nil || len(deliveries) == 0 {
			return 0, err
		}
		rows := sqlite.RowList(slices.Values(deliveries))
		for sending := true; sending; {
			if err := c.o.Logs.Get(ctx, &sending, "SELECT EXISTS (SELECT 1 FROM json_each(?) j CROSS JOIN deliveries d ON d.id = j.value WHERE d.state >= "+delivery.Sending+" AND d.due_at <= ?)",
				rows, replacedAt); err != nil {
				return 0, err
			}
			if sending {
				if err := scan.Pause(ctx, cleanAgain); err != nil {
					return 0, err
				}
			}
		}
		if err := c.change(ctx, func(t *sqlite.Tx) error {
			return t.Exec(`
				UPDATE attempts SET response_body = '', response_headers = '' WHERE (response_body <> '' OR response_headers <> '') AND id IN (
					SELECT a.id FROM json_each(?) d CROSS JOIN attempts a ON `+delivery.Attempts("d.value", "d.value")+")", rows)
		}); err != nil || len(deliveries) < cleanBatch {
			return 0, err
		}
		return deliveries[cleanBatch-1], nil
	})
}
