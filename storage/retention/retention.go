// Package retention owns the deletion of what may not be kept: rows that are older than the settings allow, and the data of erased
// users and closed organizations. It does not know how rows are made.
package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/subscription"
)

// Options are what a cleaner needs. All are required, except KeepEvents and KeepAudit.
type Options struct {
	File          *sqlite.File
	Reads         *sqlite.Pool // for single rows
	Logs          *scan.Reader // for long tables
	Directory     *directory.Directory
	Queue         *queue.Queue
	Subscriptions *subscription.Subscriptions
	IDs           publicid.Maker
	Logger        *slog.Logger

	KeepEvents  time.Duration               // how long to keep events, deliveries and attempts; 0 keeps them forever
	KeepAudit   time.Duration               // how long to keep audit events; 0 keeps them forever
	TrustedTime func() (now int64, ok bool) // the time in milliseconds; while ok is false, nothing is deleted by age
}

// Cleaner deletes what may not be kept.
type Cleaner struct {
	o       Options
	old     oldRows
	sweeps  sweeps
	toClean chan struct{} // has a value if a user may be erased, or an organization closed; see Clean
}

// New returns the cleaner of an open database.
func New(o Options) *Cleaner {
	c := &Cleaner{o: o, old: oldRows{minutesAfter: beforeOwners}, toClean: make(chan struct{}, 1)}
	c.sweeps.events.rows = "SELECT id, created_at AS at FROM events WHERE id > ? ORDER BY id LIMIT ?"
	c.sweeps.audit.rows = "SELECT id, at FROM audit_events WHERE id > ? ORDER BY id LIMIT ?"
	c.toClean <- struct{}{}
	return c
}

// change runs fn, which changes a batch of rows, in a transaction as work of Keyhook itself; see sqlite.File.Write.
func (c *Cleaner) change(ctx context.Context, fn func(*sqlite.Tx) error) error {
	return c.o.File.Write(ctx, sqlite.Work{Cost: auditBatch}, fn)
}

var keepUsage = strconv.Itoa(access.KeepUsage)

// shortLived is data with a shorter life than events. ?1 is the time in milliseconds. One transaction deletes some of the rows.
var shortLived = []struct{ what, exists, remove string }{
	{
		"the old usage of organizations",
		"SELECT EXISTS (SELECT 1 FROM organization_days WHERE day < ?1 / 86400000 - " + keepUsage + ")",
		`DELETE FROM organization_days WHERE (organization_id, day) IN (
			SELECT organization_id, day FROM organization_days INDEXED BY organization_days_by_day WHERE day < ?1 / 86400000 - ` + keepUsage + ` LIMIT 500)`,
	},
	{
		"the old usage of API keys",
		"SELECT EXISTS (SELECT 1 FROM key_days WHERE day < ?1 / 86400000 - " + keepUsage + ")",
		`DELETE FROM key_days WHERE (key_id, day) IN (
			SELECT key_id, day FROM key_days INDEXED BY key_days_by_day WHERE day < ?1 / 86400000 - ` + keepUsage + ` LIMIT 2000)`,
	},
	{
		"previous signing secrets whose overlap is over",
		"SELECT EXISTS (SELECT 1 FROM subscriptions WHERE previous_secret IS NOT NULL AND previous_until <= ?1)",
		`UPDATE subscriptions SET previous_secret = NULL, previous_until = 0 WHERE id IN (
			SELECT id FROM subscriptions WHERE previous_secret IS NOT NULL AND previous_until <= ?1 LIMIT 200)`,
	},
}

// DeleteShortLived deletes short-lived data, unless the clock is in doubt. It reads before it writes, because usually there is nothing to
// delete.
func (c *Cleaner) DeleteShortLived(ctx context.Context) (err error) {
	now, trusted := c.o.TrustedTime()
	if !trusted {
		return nil
	}
	for _, data := range shortLived {
		var some bool
		failed := c.o.Reads.Get(ctx, &some, data.exists, now)
		if failed == nil && some {
			failed = c.change(ctx, func(t *sqlite.Tx) error {
				return t.Exec(data.remove, now)
			})
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("delete %s: %w", data.what, failed))
		}
	}
	return err
}
