// Package subscription owns the changes of subscriptions: their fields, headers and secrets, and who may change what. It does not write
// deliveries: package queue does. The reads are in package history.
package subscription

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Subscriptions changes the subscriptions of an open file.
type Subscriptions struct {
	file   *sqlite.File
	queue  *queue.Queue // writes their deliveries and their health
	memory *queue.Memory
	keys   *seal.Ring
	log    *slog.Logger
}

// New returns the subscriptions of an open file, whose writer has that memory. keys encrypt their secrets and headers.
func New(file *sqlite.File, q *queue.Queue, memory *queue.Memory, keys *seal.Ring, log *slog.Logger) *Subscriptions {
	return &Subscriptions{file, q, memory, keys, log}
}

// audited measures a write of some rows with an audit event of this type.
func (s *Subscriptions) audited(organization int64, rows int, eventType string) func(*sqlite.Tx) (int, error) {
	return func(t *sqlite.Tx) (int, error) {
		cost, err := s.queue.AuditCost(t, organization, eventType)
		return rows + cost, err
	}
}

// CreateSubscription creates a subscription, and its secret unless c has one. It returns the secret only this once. Faults: Forbidden if
// the plan has no webhooks; Forbidden if the actor asks for audit events without audit:read; Conflict if the plan allows no more
// subscriptions, or another subscription has the external id; Invalid if a header has no value.
func (s *Subscriptions) CreateSubscription(ctx context.Context, by access.Actor, organization int64, c webhook.SubscriptionChange) (webhook.Subscription, webhook.Secret, error) {
	secret := c.Secret.OrNew()
	id := publicid.New(access.SubscriptionID)
	sealed := s.keys.Seal([]byte(secret.Reveal()), id)
	if c.EventTypes == nil {
		c.EventTypes = &webhook.Types{}
	}
	rows := len(*c.EventTypes)
	work := sqlite.Work{Payer: organization, Cost: rows, Measure: s.audited(organization, rows, access.SubscriptionCreated)}
	created, err := sqlite.Returning(ctx, s.file, work, func(t *sqlite.Tx) (sub webhook.Subscription, err error) {
		c := c // a write on a full disk may run twice
		if err := s.memory.Quotas.RequireWebhooks(t, organization); err != nil {
			return sub, err
		}
		canRead, err := principal.MayReadAudit(t, by.Authority)
		if err != nil {
			return sub, err
		}
		bytes := s.memory.Quotas.Require(t, organization, quota.PerChange)
		if err := cmp.Or(audit.CheckCreate(canRead, &c), requireRoomForSubscription(t, organization), bytes); err != nil {
			return sub, err
		}
		headers, err := s.check(t, organization, webhook.Subscription{ID: id, URL: *c.URL}, c)
		if err != nil {
			return sub, err
		}
		if err := t.Exec(`
			INSERT INTO subscriptions (public_id, organization_id, url, url_at, event_types, description, status, consecutive_failures,
				last_error, epoch, failing_since, probe_at, paused, secret, previous_until, birth, created_at, updated_at, audit_events, ordered)
			VALUES (?1, ?2, '', ?5, '', '', 'healthy', 0, '', 1, 0, 0, 0, ?3, 0, ?4, ?5, ?5, 0, 0)`, id, organization, sealed, s.queue.NextEvent(t), t.Now()); err != nil {
			return sub, err
		}
		if sub, err = s.queue.SubscriptionIn(t, organization, id); err != nil {
			return sub, err
		}
		s.queue.SubscriptionCreated(t, sub.Health)
		if err := s.applyChange(t, by, organization, &sub, c, headers); err != nil {
			return sub, err
		}
		return sub, s.queue.Audit(t, by, organization, access.SubscriptionCreated, audit.Subscription(sub.ID, sub.RowID), c.AuditDetails())
	})
	return created, secret, err
}

// Count returns how many subscriptions an organization has, and how many deliveries are pending for them.
func (s *Subscriptions) Count(t *sqlite.Tx, organization int64) (subscriptions, pending int64, err error) {
	var rows []int64
	if err := t.List(&rows, "SELECT id FROM subscriptions INDEXED BY subscriptions_live WHERE organization_id = ? AND deleted_at IS NULL", organization); err != nil {
		return 0, 0, err
	}
	for _, row := range rows {
		pending += s.memory.Pending().Of(row)
	}
	return int64(len(rows)), pending, nil
}

// UpdateSubscription changes a subscription. is_active true makes it healthy and resumes its pending deliveries, from any status. is_active
// false disables it. An empty change does nothing. A subscription that stops receiving audit events loses the pending ones. Faults:
// NotFound; Forbidden if the change needs audit:read and the actor lacks it, see audit.UpdateRefusal; Conflict if too many deliveries are
// pending to search them for audit events or to put them in order, or another subscription has the external id; Limited if the organization
// has changed too much today, but for a pause; those of webhook.SubscriptionChange.CheckHost and setHeaders.
func (s *Subscriptions) UpdateSubscription(ctx context.Context, by access.Actor, organization int64, id string, c webhook.SubscriptionChange) (webhook.Subscription, error) {
	work := sqlite.Work{
		Payer: organization,
		// A change that may also move thousands of deliveries has no right to go first.
		Urgent:  c.IsActive != nil && !*c.IsActive && c.Ordered == nil && c.EventTypes == nil && c.AuditEvents == nil,
		Measure: func(t *sqlite.Tx) (int, error) { return s.costOfChange(t, organization, id, c) },
	}
	return sqlite.Returning(ctx, s.file, work, func(t *sqlite.Tx) (webhook.Subscription, error) {
		sub, err := s.queue.SubscriptionIn(t, organization, id)
		if err != nil {
			return sub, err
		}
		if c == (webhook.SubscriptionChange{}) {
			return sub, nil
		}
		if isPause := sub.Active() && c.IsActive != nil && !*c.IsActive; !isPause {
			if err := s.memory.Quotas.RequireChange(t, organization); err != nil {
				return sub, err
			}
		}
		if refusal := audit.UpdateRefusal(sub, c); refusal != nil {
			if canRead, err := principal.MayReadAudit(t, by.Authority); err != nil || !canRead {
				return sub, cmp.Or(err, refusal)
			}
		}
		headers, err := s.check(t, organization, sub, c)
		if err != nil {
			return sub, err
		}
		before := sub.Status
		if err := s.applyChange(t, by, organization, &sub, c, headers); err != nil {
			return sub, err
		}
		if sub.Status == webhook.Disabled && before != webhook.Disabled {
			if err := s.queue.AuditHealth(t, by, organization, sub); err != nil {
				return sub, err
			}
		}
		return sub, s.queue.Audit(t, by, organization, access.SubscriptionUpdated, audit.Subscription(sub.ID, sub.RowID), c.AuditDetails())
	})
}

// costOfChange returns about how many rows a change writes or reads: the patterns of its types, and the pending deliveries if it
// may change them.
func (s *Subscriptions) costOfChange(t *sqlite.Tx, organization int64, id string, c webhook.SubscriptionChange) (int, error) {
	cost, err := s.queue.AuditCost(t, organization, access.SubscriptionUpdated)
	if err != nil {
		return 0, err
	}
	if c.EventTypes != nil {
		cost += 2 * len(*c.EventTypes)
	}
	sub, err := s.queue.SubscriptionIn(t, organization, id)
	if err == nil && (losesAuditEvents(sub, c) || becomesOrdered(sub, c)) {
		cost += int(min(sub.PendingDeliveries, maxPendingChanged))
	}
	return cost, err
}

// applyChange writes a change to the table and to sub, and tells the dispatcher, which keeps a Target of a subscription in memory. headers
// is from check, and only a failure of the file can refuse the change.
func (s *Subscriptions) applyChange(
	t *sqlite.Tx, by access.Actor, organization int64, sub *webhook.Subscription, c webhook.SubscriptionChange, headers []byte,
) error {
	before := sub.Health
	if err := s.setFields(t, by, organization, sub, c, headers); err != nil {
		return err
	}
	sub.UpdatedAt = t.Now()
	if err := t.Exec(`
		UPDATE subscriptions SET url_at = CASE WHEN url = ?1 THEN url_at ELSE ?6 END, url = ?1, event_types = ?2, audit_events = ?3,
			description = ?4, rate_limit_per_second = ?5, updated_at = ?6, external_id = ?8, ordered = ?9, filter = ?10, filter_changed_at = ?11
		WHERE id = ?7`,
		sub.URL, sub.EventTypes, sub.AuditEvents, sub.Description, sub.RateLimitPerSecond, sub.UpdatedAt, sub.RowID, sub.ExternalID, sub.Ordered, sub.Filter, sub.FilterChangedAt); err != nil {
		return err
	}
	s.queue.SubscriptionsChanged(t, sub.RowID)
	return s.queue.SetHealth(t, sub, before)
}

// setFields sets the fields of sub that a change names. It also writes its headers and the patterns of its types, and drops pending
// audit events that it no longer receives.
func (s *Subscriptions) setFields(t *sqlite.Tx, by access.Actor, organization int64, sub *webhook.Subscription, c webhook.SubscriptionChange, headers []byte) error {
	loses := losesAuditEvents(*sub, c)
	if c.ExternalID != nil {
		sub.ExternalID = access.NullIfEmpty(*c.ExternalID)
	}
	if c.Headers != nil {
		if err := s.setHeaders(t, organization, sub, *c.Headers, headers); err != nil {
			return err
		}
	}
	if c.URL != nil && *c.URL != sub.URL {
		sub.URL, sub.Health = *c.URL, sub.Renew()
		if sub.URL == "" && !sub.ByPerson() { // a feed has no receiver that fails
			sub.Health = sub.Activate()
		}
	}
	access.Set(&sub.Description, c.Description)
	if c.EventTypes != nil {
		sub.EventTypes = c.EventTypes.Unique()
		if err := s.setPatterns(t, organization, *sub); err != nil {
			return err
		}
	}
	if c.Filter != nil && c.Filter.Text() != sub.Filter.Text() {
		sub.Filter, sub.FilterChangedAt = *c.Filter, new(t.Now())
	}
	access.Set(&sub.AuditEvents, c.AuditEvents)
	if loses {
		if err := s.queue.DropAudit(t, sub); err != nil {
			return err
		}
		sub.Health = sub.Renew() // attempts that have begun wait for a slot
	}
	if c.IsActive != nil && *c.IsActive {
		sub.Health = sub.Activate()
	} else if c.IsActive != nil {
		by, err := audit.ActorForLog(t, by)
		if err != nil {
			return err
		}
		sub.Health = sub.Deactivate(by.Name)
	}
	access.Set(&sub.RateLimitPerSecond, c.RateLimitPerSecond)
	return s.queue.SetOrdered(t, sub, c.Ordered)
}

// setPatterns writes the patterns that fan-out uses to find the subscription. They are its types, without those that another type covers.
func (s *Subscriptions) setPatterns(t *sqlite.Tx, organization int64, sub webhook.Subscription) error {
	if err := dropPatterns(t, sub.RowID); err != nil {
		return err
	}
	s.memory.Fanout.SetTypes(organization, sub.RowID, &sub.EventTypes)
	return t.Exec("INSERT INTO subscription_patterns (organization_id, pattern, subscription_id) SELECT ?, value, ? FROM json_each(?)",
		organization, sub.RowID, sqlite.TextList(sub.EventTypes.Patterns()))
}

func dropPatterns(t *sqlite.Tx, subscription int64) error {
	return t.Exec("DELETE FROM subscription_patterns WHERE subscription_id = ?", subscription)
}

// DeleteSubscription deletes a subscription, so nothing more is sent to it. Its log stays until retention deletes it. Faults: NotFound.
func (s *Subscriptions) DeleteSubscription(ctx context.Context, by access.Actor, organization int64, id string) error {
	work := sqlite.Work{Payer: organization, Urgent: true, Reserve: true, Measure: s.audited(organization, 0, access.SubscriptionDeleted)}
	return s.file.Write(ctx, work, func(t *sqlite.Tx) error {
		sub, err := s.queue.SubscriptionIn(t, organization, id)
		if err != nil {
			return err
		}
		if err := s.Remove(t, organization, sub.RowID, sub.Health); err != nil {
			return err
		}
		return s.queue.Audit(t, by, organization, access.SubscriptionDeleted, audit.Subscription(sub.ID, sub.RowID), nil)
	})
}

// Remove deletes a subscription with its secrets and headers. The URL stays, because the log of its attempts shows it.
func (s *Subscriptions) Remove(t *sqlite.Tx, organization, row int64, health webhook.Health) error {
	if err := t.Exec(`
		UPDATE subscriptions SET deleted_at = ?1, updated_at = ?1, external_id = NULL, epoch = epoch + 1, secret = x'', previous_secret = NULL, previous_until = 0
		WHERE id = ?2`, t.Now(), row); err != nil {
		return err
	}
	if err := dropPatterns(t, row); err != nil {
		return err // SQLite may have ended the transaction, and then another statement would be one of its own
	}
	if err := dropHeaders(t, row); err != nil {
		return err
	}
	s.memory.Fanout.SetTypes(organization, row, nil)
	s.queue.SubscriptionRemoved(t, row, health)
	return nil
}

// maxPendingChanged is how many pending deliveries a change of their subscription may search or change.
const maxPendingChanged = 10_000

// check makes all checks of a change, before its first write. It returns the new headers, encrypted.
func (s *Subscriptions) check(t *sqlite.Tx, organization int64, sub webhook.Subscription, c webhook.SubscriptionChange) (headers []byte, err error) {
	taken := directory.RefuseTaken(t, "subscription", "external_id", `
		SELECT public_id FROM subscriptions INDEXED BY subscriptions_by_external_id
		WHERE organization_id = ? AND external_id = ? AND external_id IS NOT NULL AND id <> ?`, organization, c.ExternalID, sub.RowID)
	if err := cmp.Or(errors.Join(c.CheckHost(sub), refuseWithPending(t, sub, c)), taken); err != nil {
		return nil, err
	}
	if sub.PendingDeliveries > maxPendingChanged && losesAuditEvents(sub, c) {
		return nil, fault.New(fault.Conflict, "too_many_pending",
			"With this change the subscription would stop receiving audit events, so its pending audit events must be dropped. "+
				"It has %d pending deliveries, and at most %d can be searched.", sub.PendingDeliveries, maxPendingChanged)
	}
	if sub.PendingDeliveries > maxPendingChanged && becomesOrdered(sub, c) {
		return nil, fault.New(fault.Conflict, "too_many_pending",
			"To make the subscription ordered, its pending deliveries must be put in order. It has %d, and at most %d can be put in order.", sub.PendingDeliveries, maxPendingChanged)
	}
	if c.Headers == nil {
		return nil, nil
	}
	return s.sealHeaders(t, organization, sub, *c.Headers)
}

// becomesOrdered reports whether a change makes a subscription ordered, so that its pending deliveries are put in order.
func becomesOrdered(sub webhook.Subscription, c webhook.SubscriptionChange) bool {
	return c.Ordered != nil && *c.Ordered && !sub.Ordered
}

// losesAuditEvents reports whether a change makes a subscription stop receiving audit events, so that the pending ones are dropped.
func losesAuditEvents(sub webhook.Subscription, c webhook.SubscriptionChange) bool {
	after := sub
	access.Set(&after.EventTypes, c.EventTypes)
	access.Set(&after.AuditEvents, c.AuditEvents)
	return audit.Receives(sub) && !audit.Receives(after)
}

// requireRoomForSubscription refuses one subscription more than the plan allows. Removed ones do not count. The count stands
// in the transaction that adds one, so no number of parallel requests passes the limit. Faults: Conflict.
func requireRoomForSubscription(t *sqlite.Tx, organization int64) error {
	plan, err := directory.PlanOf(t, organization)
	var have int64
	if err := cmp.Or(err, t.Get(&have, history.CountLiveSubscriptions, organization)); err != nil {
		return err
	}
	return plan.CheckSubscriptions(have)
}

// refuseWithPending refuses a change from or to no URL while something is pending: a feed has no deliveries. Faults: Conflict.
func refuseWithPending(t *sqlite.Tx, sub webhook.Subscription, c webhook.SubscriptionChange) error {
	if c.URL == nil || (*c.URL == "") == (sub.URL == "") {
		return nil
	}
	return sqlite.RefuseIf(t, fault.New(fault.Conflict, "deliveries_pending",
		"Deliveries are pending for this subscription, and one without a URL has none. Wait until they are sent, or discard them; then change the URL."), `
		SELECT 1 FROM deliveries d INDEXED BY deliveries_pending WHERE d.subscription_id = ?1 AND d.state = `+delivery.Pending+`
		UNION ALL SELECT 1 FROM deliveries d INDEXED BY deliveries_sending WHERE d.subscription_id = ?1 AND d.state >= `+delivery.Sending, sub.RowID)
}
