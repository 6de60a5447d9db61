package storage

import (
	"context"
	"net/url"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

const subscriptionColumns = `
	s.id, s.public_id, o.public_id AS organization_public_id, s.url, s.event_types, s.audit_events, s.description,
	s.status, s.consecutive_failures, s.last_error, s.epoch, s.probe_at, s.rate_limit_per_second,
	s.created_at, s.updated_at, s.disabled_at, s.last_success_at, s.last_failure_at`

const subscriptionByID = `
	SELECT ` + subscriptionColumns + `
	FROM subscriptions s JOIN organizations o ON o.id = s.organization_id
	WHERE s.public_id = ? AND s.organization_id = ? AND s.deleted_at IS NULL`

// Subscriptions lists the subscriptions of an organization, newest first; an empty status is any.
func (s *Store) Subscriptions(ctx context.Context, organization int64, status webhook.Status, before int64, limit int) ([]webhook.Subscription, error) {
	end, err := s.logs.Take(ctx, organization) // removed subscriptions add up as a log does
	if err != nil {
		return nil, err
	}
	defer end()
	list := []webhook.Subscription{}
	err = s.logs.List(ctx, &list, `
		SELECT `+subscriptionColumns+`
		FROM subscriptions s JOIN organizations o ON o.id = s.organization_id
		WHERE s.organization_id = ?1 AND s.id < ?2 AND (?3 = '' OR s.status = ?3) AND s.deleted_at IS NULL
		ORDER BY s.id DESC LIMIT ?4`, organization, scan.UpperBound(before), status, limit)
	for i := range list {
		list[i].PendingDeliveries = s.pending.of(list[i].RowID)
	}
	return list, err
}

// Subscription returns one subscription. Faults: NotFound.
func (s *Store) Subscription(ctx context.Context, organization int64, id string) (webhook.Subscription, error) {
	var sub webhook.Subscription
	if err := s.get(ctx, &sub, subscriptionByID, id, organization); err != nil {
		return sub, sqlite.Missing(err, "subscription")
	}
	sub.PendingDeliveries = s.pending.of(sub.RowID)
	return sub, nil
}

// subscription is Subscription inside a transaction.
func (s *Store) subscription(t *tx, organization int64, id string) (webhook.Subscription, error) {
	var sub webhook.Subscription
	if err := t.Get(&sub, subscriptionByID, id, organization); err != nil {
		return sub, sqlite.Missing(err, "subscription")
	}
	sub.PendingDeliveries = s.pending.of(sub.RowID)
	return sub, nil
}

// subscriptionRow returns the row id of a subscription.
func subscriptionRow(t *tx, organization int64, id string) (row int64, err error) {
	err = t.Get(&row, rowOfSubscription, id, organization)
	return row, sqlite.Missing(err, "subscription")
}

const rowOfSubscription = "SELECT id FROM subscriptions WHERE public_id = ? AND organization_id = ? AND deleted_at IS NULL"

// SubscriptionRow returns the row id of a subscription. Faults: NotFound.
func (s *Store) SubscriptionRow(ctx context.Context, organization int64, id string) (row int64, err error) {
	err = s.get(ctx, &row, rowOfSubscription, id, organization)
	return row, sqlite.Missing(err, "subscription")
}

// CreateSubscription makes a subscription and its secret, which is returned here and never again. Faults: Forbidden where
// the plan lacks webhooks, and where by lacks audit:read and names types of audit events, or asks for audit_events; Conflict
// where the plan allows no more subscriptions.
func (s *Store) CreateSubscription(ctx context.Context, by access.Actor, organization int64, c webhook.SubscriptionChange) (webhook.Subscription, webhook.Secret, error) {
	secret := webhook.NewSecret()
	id := publicid.New(access.SubscriptionID)
	sealed := s.keyRing.Seal([]byte(secret.Reveal()), id)
	if c.EventTypes == nil {
		c.EventTypes = &webhook.Types{}
	}
	made, err := returning(ctx, s.workFor(organization), func(t *tx) (sub webhook.Subscription, err error) {
		if err := requireWebhooks(t, organization); err != nil {
			return sub, err
		}
		if err := mayCreate(t, by, &c); err != nil {
			return sub, err
		}
		if err := requireRoomForSubscription(t, organization); err != nil {
			return sub, err
		}
		if err := requireStorage(t, organization, storedPerChange); err != nil {
			return sub, err
		}
		if _, err := t.Exec(`
			INSERT INTO subscriptions (public_id, organization_id, url, event_types, description, status, consecutive_failures,
				last_error, epoch, probe_at, secret, previous_until, birth, created_at, updated_at, audit_events)
			VALUES (?1, ?2, '', '', '', 'healthy', 0, '', 1, 0, ?3, 0, ?4, ?5, ?5, 0)`, id, organization, sealed, s.lastEvent+1, t.Now()); err != nil {
			return sub, err
		}
		if sub, err = s.subscription(t, organization, id); err != nil {
			return sub, err
		}
		if err := s.apply(t, by, &sub, c); err != nil {
			return sub, err
		}
		return sub, s.audit(t, by, organization, access.SubscriptionCreated, auditTarget{"subscription", id, sub.RowID}, changedFields(c))
	})
	if err != nil {
		return made, webhook.Secret{}, err
	}
	return made, secret, nil
}

// requireRoomForSubscription refuses one subscription more than the plan allows. Removed ones do not count. The count stands
// in the transaction that adds one, so no number of parallel requests passes the limit. Faults: Conflict.
func requireRoomForSubscription(t *tx, organization int64) error {
	plan, err := directory.PlanOf(t.Tx, organization)
	if err != nil {
		return err
	}
	var have int64
	if err := t.Get(&have, `
		SELECT count(*) FROM subscriptions INDEXED BY subscriptions_live WHERE organization_id = ? AND deleted_at IS NULL`, organization); err != nil {
		return err
	}
	return plan.CheckSubscriptions(have)
}

// UpdateSubscription changes a subscription. is_active true makes it healthy, whatever it was, and what is pending
// resumes; false disables it. A change of nothing leaves no trace. A subscription that stops to receive audit events loses
// those that are pending. Faults: NotFound; Forbidden where by lacks audit:read and the change needs it, see mayRedirect;
// Conflict where too much is pending to look for audit events.
func (s *Store) UpdateSubscription(ctx context.Context, by access.Actor, organization int64, id string, c webhook.SubscriptionChange) (webhook.Subscription, error) {
	w := s.workFor(organization)
	if c.IsActive != nil && !*c.IsActive {
		w = w.first()
	}
	return returning(ctx, w, func(t *tx) (webhook.Subscription, error) {
		sub, err := s.subscription(t, organization, id)
		if err != nil {
			return sub, err
		}
		if c == (webhook.SubscriptionChange{}) {
			return sub, nil
		}
		if err := mayRedirect(t, by, sub, c); err != nil {
			return sub, err
		}
		before := sub.Status
		if err := s.apply(t, by, &sub, c); err != nil {
			return sub, err
		}
		if sub.Status == webhook.Disabled && before != webhook.Disabled {
			if err := s.auditHealth(t, by, organization, sub.RowID, id, sub.Health); err != nil {
				return sub, err
			}
		}
		return sub, s.audit(t, by, organization, access.SubscriptionUpdated, auditTarget{"subscription", id, sub.RowID}, changedFields(c))
	})
}

// changedFields lists what a change names, for the audit log. Of an address it shows the host alone: what follows it is
// often a secret of the receiver's, and the log has other readers.
func changedFields(c webhook.SubscriptionChange) map[string]any {
	details := map[string]any{}
	if c.URL != nil {
		details["url_host"] = hostOf(*c.URL)
	}
	if c.EventTypes != nil {
		details["event_types"] = *c.EventTypes
	}
	if c.AuditEvents != nil {
		details["audit_events"] = *c.AuditEvents
	}
	if c.Description != nil {
		details["description"] = *c.Description
	}
	if c.IsActive != nil {
		details["is_active"] = *c.IsActive
	}
	if c.SetRateLimit {
		details["rate_limit_per_second"] = c.RateLimitPerSecond
	}
	return details
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

// apply writes a change to a subscription and to sub.
func (s *Store) apply(t *tx, by access.Actor, sub *webhook.Subscription, c webhook.SubscriptionChange) error {
	before, received := sub.Health, receivesAudit(*sub)
	if c.URL != nil && *c.URL != sub.URL {
		sub.URL, sub.Health = *c.URL, sub.Renew()
	}
	if c.Description != nil {
		sub.Description = *c.Description
	}
	if c.EventTypes != nil {
		sub.EventTypes = c.EventTypes.Unique()
		if err := setPatterns(t, *sub); err != nil {
			return err
		}
	}
	if err := s.setAuditEvents(t, sub, received, c.AuditEvents); err != nil {
		return err
	}
	if c.IsActive != nil && *c.IsActive {
		sub.Health = sub.Activate()
	} else if c.IsActive != nil {
		sub.Health = sub.Deactivate(by.Name)
	}
	if c.SetRateLimit {
		sub.RateLimitPerSecond = c.RateLimitPerSecond
	}
	sub.UpdatedAt = t.Now()
	if _, err := t.Exec(`
		UPDATE subscriptions SET url = ?, event_types = ?, audit_events = ?, description = ?, rate_limit_per_second = ?, updated_at = ? WHERE id = ?`,
		sub.URL, sub.EventTypes, sub.AuditEvents, sub.Description, sub.RateLimitPerSecond, sub.UpdatedAt, sub.RowID); err != nil {
		return err
	}
	if c.SetRateLimit || sub.Health != before {
		s.announceChange(t, sub.RowID)
	}
	if sub.Health == before {
		return nil
	}
	if sub.Status != before.Status {
		sub.DisabledAt = nil
		if sub.Status == webhook.Disabled {
			sub.DisabledAt = new(t.Now()) // a copy: the transaction's own moves on
		}
	}
	s.observeHealth(t, before.Status, sub.Status)
	return writeHealth(t, sub.RowID, sub.Health)
}

// setPatterns writes what the subscription is found by at fan-out: its types without those that another of them covers.
func setPatterns(t *tx, sub webhook.Subscription) error {
	if err := dropPatterns(t, sub.RowID); err != nil {
		return err
	}
	patterns := sub.EventTypes.Patterns()
	for _, p := range patterns {
		if _, err := t.Exec(`
			INSERT INTO subscription_patterns (organization_id, pattern, subscription_id)
			SELECT organization_id, ?, id FROM subscriptions WHERE id = ?`, p, sub.RowID); err != nil {
			return err
		}
	}
	return nil
}

func dropPatterns(t *tx, subscription int64) error {
	t.cache.forgetTypes()
	_, err := t.Exec("DELETE FROM subscription_patterns WHERE subscription_id = ?", subscription)
	return err
}

// DeleteSubscription removes a subscription; nothing more is sent. Its log stays until retention. Faults: NotFound.
func (s *Store) DeleteSubscription(ctx context.Context, by access.Actor, organization int64, id string) error {
	return s.workFor(organization).first().change(ctx, func(t *tx) error {
		row, err := subscriptionRow(t, organization, id)
		if err != nil {
			return err
		}
		if _, err := t.Exec("UPDATE subscriptions SET deleted_at = ?1, updated_at = ?1, epoch = epoch + 1 WHERE id = ?2", t.Now(), row); err != nil {
			return err
		}
		if err := dropPatterns(t, row); err != nil {
			return err
		}
		t.OnCommit(func() { s.pending.remove(row) })
		s.announceChange(t, row)
		return s.audit(t, by, organization, access.SubscriptionDeleted, auditTarget{"subscription", id, row}, nil)
	})
}

// dropOrphans ends what is pending for removed subscriptions, up to dropBatch deliveries of each. A pass visits dropVisits
// subscriptions at most. The next one goes on behind them, so none waits for ever and retention waits for few.
func (s *Store) dropOrphans(ctx context.Context) error {
	for _, row := range s.pending.orphaned(dropVisits) {
		if err := s.change(ctx, func(t *tx) error {
			n, err := t.Affected(`
				UPDATE deliveries SET state = `+stateDropped+` WHERE id IN (
					SELECT id FROM deliveries INDEXED BY deliveries_pending WHERE subscription_id = ? AND state = `+statePending+` LIMIT ?)`, row, dropBatch)
			t.OnCommit(func() { s.pending.add(row, -n) })
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

const (
	// dropBatch bounds how long other writes wait for one of upkeep's.
	dropBatch = 500
	// dropVisits bounds how long the rest of upkeep waits: a visit is a transaction of some 3 ms.
	dropVisits = 100
)

// Target returns where and how a subscription's deliveries are sent at present. A secret that cannot be unsealed is told
// in Unusable: the attempts fail with that, and the other subscriptions go on. Faults: NotFound.
func (s *Store) Target(ctx context.Context, subscription int64) (webhook.Target, error) {
	return s.target(func(dest any, text string, args ...any) error { return s.get(ctx, dest, text, args...) }, subscription)
}

// target is Target by whichever connection get reads from.
func (s *Store) target(get func(dest any, text string, args ...any) error, subscription int64) (webhook.Target, error) {
	var row struct {
		webhook.Subscription
		Organization  int64  `db:"organization_id"`
		Sealed        []byte `db:"secret"`
		Previous      []byte `db:"previous_secret"`
		PreviousUntil int64  `db:"previous_until"`
		Webhooks      bool   `db:"webhooks"`
		Deleted       bool   `db:"deleted"`
	}
	if err := get(&row, `
		SELECT `+subscriptionColumns+`, s.organization_id, s.secret, s.previous_secret, s.previous_until, p.webhooks, s.deleted_at IS NOT NULL AS deleted
		FROM subscriptions s JOIN organizations o ON o.id = s.organization_id JOIN plans p ON p.id = o.plan_id
		WHERE s.id = ?`, subscription); err != nil {
		return webhook.Target{}, sqlite.Missing(err, "subscription")
	}
	at := webhook.Target{
		Subscription: row.RowID, ID: row.ID, Organization: row.Organization, OrganizationID: row.OrganizationID, URL: row.URL,
		PreviousUntil: row.PreviousUntil, RateLimitPerSecond: row.RateLimitPerSecond, Health: row.Health,
		Open: row.Active() && row.Webhooks && !row.Deleted && s.Held() == nil,
	}
	text, err := s.keyRing.Open(row.Sealed, row.ID)
	if err != nil {
		at.Unusable = "the signing secret cannot be unsealed; rotate the secret"
		s.log.Error("signing secret cannot be unsealed; rotate it, or set encryption.key as it was", "subscription", row.ID, "error", err)
		return at, nil
	}
	at.Secret = webhook.KnownSecret(string(text))
	if len(row.Previous) > 0 {
		if text, err := s.keyRing.Open(row.Previous, row.ID); err == nil {
			at.Previous = webhook.KnownSecret(string(text))
		}
	}
	return at, nil
}
