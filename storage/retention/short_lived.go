package retention

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/sqlite"
)

// Some data has a shorter life than events: the stored bytes of a day, and the previous secret of a subscription.

// storageDaysBatch limits the counts that one transaction deletes.
const storageDaysBatch = 500

// DeleteStorageDays deletes the counts from before yesterday, unless the clock is in doubt. It reads before it writes,
// because usually there are none.
func (c *Cleaner) DeleteStorageDays(ctx context.Context) error {
	now, trusted := c.o.TrustedTime()
	if !trusted {
		return nil
	}
	before := now/(24*time.Hour).Milliseconds() - 1
	var past bool
	if err := c.o.Reads.Get(ctx, &past, "SELECT EXISTS (SELECT 1 FROM storage_days WHERE day < ?)", before); err != nil || !past {
		return err
	}
	return c.change(ctx, func(t *sqlite.Tx) error {
		_, err := t.Exec(`
			DELETE FROM storage_days WHERE (organization_id, day) IN (
				SELECT organization_id, day FROM storage_days INDEXED BY storage_days_by_day WHERE day < ? LIMIT ?)`, before, storageDaysBatch)
		return err
	})
}

// previousSecretsBatch limits the secrets that one transaction deletes.
const previousSecretsBatch = 200

// DeletePreviousSecrets deletes previous secrets after their overlap, unless the clock is in doubt. It reads before it
// writes, because usually there are none.
func (c *Cleaner) DeletePreviousSecrets(ctx context.Context) error {
	now, trusted := c.o.TrustedTime()
	if !trusted {
		return nil
	}
	var expired bool
	if err := c.o.Reads.Get(ctx, &expired, "SELECT EXISTS (SELECT 1 FROM subscriptions WHERE previous_secret IS NOT NULL AND previous_until <= ?)", now); err != nil || !expired {
		return err
	}
	return c.change(ctx, func(t *sqlite.Tx) error {
		_, err := t.Exec(`
			UPDATE subscriptions SET previous_secret = NULL, previous_until = 0 WHERE id IN (
				SELECT id FROM subscriptions WHERE previous_secret IS NOT NULL AND previous_until <= ? LIMIT ?)`, now, previousSecretsBatch)
		return err
	})
}
