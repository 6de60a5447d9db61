// Package quota owns the usage of organizations in a day, and the limit on the bytes that they may store: it counts them, and refuses more
// than the plan allows. It estimates the bytes of rows, and does not know how they are written.
package quota

import (
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Estimates, in bytes, of what rows and their indexes add to the file. Measured: 250 to 450 for an event without its
// data, with its first delivery and attempt; 90 for each further delivery; 220 for an audit event.
const (
	perEvent      = 450 // 300 for the rows and 150 for the envelope of the body
	PerDelivery   = 100
	PerAuditEvent = 300
	// PerChange is the least that a change needs: its row in the audit log, and the event about it.
	PerChange = 1_000
	// beyondLimit are the bytes beyond the limit that are left for sessions and changes.
	beyondLimit = 10_000 * PerChange
)

const dayLength = 86_400_000 // milliseconds

// Size estimates how many bytes an event and its deliveries add to the file.
func Size(e webhook.NewEvent, deliveries int) int {
	return perEvent + len(e.Type) + len(e.Data) + len(e.IdempotencyKey) + deliveries*PerDelivery
}

// maxCached limits the organizations in memory.
const maxCached = 10_000

// Quotas count the usage of each organization in the current UTC day. The table organization_days has the counts as of the last commit. The
// wall clock decides the day. If it jumps to another day, the count of that day applies. If it jumps back, the old count applies again.
type Quotas struct {
	day    int64
	cached map[int64]*Quota                 // by organization; only the writer changes them
	added  map[int64]access.OrganizationUse // by organization, what this transaction adds
}

// Quota is how much an organization may store in a day, and how much it has stored. It also has what else a publication needs: the
// public id, and whether the plan has webhooks.
type Quota struct {
	ID    string `db:"public_id"`
	Plan  string `db:"name"`
	Limit *int64 `db:"max_stored_bytes_per_day"` // nil means no limit
	Bytes int64  `db:"bytes"`                    // includes those of this transaction

	eventAt  int64 // the stored time of its last event; 0: not known
	Webhooks bool  `db:"webhooks"` // the plan has webhooks
	Closed   bool  `db:"closed"`   // the organization is closed
}

// New returns quotas without any count.
func New() *Quotas {
	return &Quotas{cached: map[int64]*Quota{}, added: map[int64]access.OrganizationUse{}}
}

// Forget empties the cache. Call it when the plan of an organization changes, or when an organization is closed.
func (q *Quotas) Forget() { clear(q.cached) }

// Remove removes an organization that the transaction has deleted.
func (q *Quotas) Remove(organization int64) {
	delete(q.cached, organization)
	delete(q.added, organization)
}

// Reset also removes what the transaction has added, for a rollback.
func (q *Quotas) Reset() {
	q.Forget()
	clear(q.added)
}

// Count adds stored bytes to the usage of an organization.
func (q *Quotas) Count(t *sqlite.Tx, organization int64, bytes int) {
	q.Add(t, organization, access.OrganizationUse{StoredBytes: int64(bytes)})
}

// Add adds to the usage of an organization.
func (q *Quotas) Add(t *sqlite.Tx, organization int64, use access.OrganizationUse) {
	if use == (access.OrganizationUse{}) {
		return
	}
	t.UndoIfFailed()
	sum := q.added[organization]
	sum.Add(use)
	q.added[organization] = sum
	if known, ok := q.cached[organization]; ok {
		known.Bytes += use.StoredBytes
	}
}

// Of returns the quota of an organization on the day of the transaction.
func (q *Quotas) Of(t *sqlite.Tx, organization int64) (*Quota, error) {
	day := t.Now() / dayLength
	if q.day != day {
		q.day = day
		q.Forget()
	}
	if known, ok := q.cached[organization]; ok {
		return known, nil
	}
	found := new(Quota)
	if err := t.Get(found, `
		SELECT o.public_id, p.name, p.webhooks, p.max_stored_bytes_per_day, o.closed_at IS NOT NULL AS closed,
		       coalesce((SELECT stored_bytes FROM organization_days WHERE organization_id = o.id AND day = ?2), 0) AS bytes
		FROM organizations o JOIN plans p ON p.id = o.plan_id WHERE o.id = ?1`, organization, day); err != nil {
		return nil, sqlite.Missing(err, "organization")
	}
	found.Bytes += q.added[organization].StoredBytes
	if len(q.cached) >= maxCached {
		q.Forget()
	}
	q.cached[organization] = found
	return found, nil
}

// ErrClosed refuses a change of a closed organization.
var ErrClosed = fault.New(fault.Conflict, "organization_closed", "This organization is closed and takes nothing new; create a new organization.")

// OfOpen is Of for an organization that must not be closed. Faults: Conflict.
func (q *Quotas) OfOpen(t *sqlite.Tx, organization int64) (*Quota, error) {
	has, err := q.Of(t, organization)
	if err == nil && has.Closed {
		err = ErrClosed
	}
	return has, err
}

// Require refuses bytes that the plan does not allow today. The check is part of the transaction that adds them,
// so parallel requests cannot exceed the limit. Faults: Limited; Conflict for a closed organization.
func (q *Quotas) Require(t *sqlite.Tx, organization int64, bytes int) error {
	return q.require(t, organization, bytes, 0)
}

// RequireChange is Require for the start of a session, and for a change that only the audit log grows by. A few thousand are allowed beyond
// the limit: who has used it up must be able to look at that and to change it.
func (q *Quotas) RequireChange(t *sqlite.Tx, organization int64) error {
	return q.require(t, organization, PerChange, beyondLimit)
}

func (q *Quotas) require(t *sqlite.Tx, organization int64, bytes int, beyond int64) error {
	has, err := q.OfOpen(t, organization)
	switch {
	case err != nil:
		return err
	case has.Limit == nil || has.Bytes+int64(bytes) <= *has.Limit+beyond:
		return nil
	}
	return fault.New(fault.Limited, "storage_quota_exceeded",
		"The plan %q allows %d stored bytes per UTC day (max_stored_bytes_per_day). The organization has stored %d today, and this "+
			"request needs about %d more. Try again after midnight UTC, or ask an operator for a higher max_stored_bytes_per_day or another plan.",
		has.Plan, *has.Limit, has.Bytes, bytes)
}

// ErrNoWebhooks is the fault of a plan without webhooks.
var ErrNoWebhooks = fault.New(fault.Forbidden, "plan_capability_required",
	"The organization's plan does not include webhooks; an operator can change the plan.")

// RequireWebhooks refuses if the organization's plan has no webhooks, or if the organization is closed. Faults: Forbidden; Conflict.
func (q *Quotas) RequireWebhooks(t *sqlite.Tx, organization int64) error {
	has, err := q.OfOpen(t, organization)
	if err == nil && !has.Webhooks {
		err = ErrNoWebhooks
	}
	return err
}

// Write adds the usage in the transaction to the table.
func (q *Quotas) Write(t *sqlite.Tx) error {
	for organization, use := range q.added {
		if err := t.Exec(`
			INSERT INTO organization_days (organization_id, day, stored_bytes, events, succeeded, failed) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (organization_id, day) DO UPDATE SET stored_bytes = stored_bytes + excluded.stored_bytes,
				events = events + excluded.events, succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed`,
			organization, t.Now()/dayLength, use.StoredBytes, use.Events, use.Succeeded, use.Failed); err != nil {
			return fmt.Errorf("count usage: %w", err)
		}
		if err := q.writeEventTime(t, organization, use); err != nil {
			return err
		}
	}
	clear(q.added)
	return nil
}

const eventTimePrecision = 1000 // milliseconds; an organization that publishes all the time writes it so rarely

// writeEventTime stores the time of the organization's last event, unless the stored time is precise enough.
func (q *Quotas) writeEventTime(t *sqlite.Tx, organization int64, use access.OrganizationUse) error {
	known := q.cached[organization]
	if use.Events == 0 || known != nil && t.Now() >= known.eventAt && t.Now() < known.eventAt+eventTimePrecision {
		return nil
	}
	if known != nil {
		known.eventAt = t.Now()
	}
	return t.Exec("UPDATE organizations SET last_event_at = ? WHERE id = ?", t.Now(), organization)
}
