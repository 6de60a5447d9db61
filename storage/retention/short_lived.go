package retention

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyhook/keyhook/storage/sqlite"
)

// shortLived is data with a shorter life than events. ?1 is the time in milliseconds. One transaction deletes some of the rows.
var shortLived = []struct{ what, exists, remove string }{
	{
		"the stored bytes from before yesterday",
		"SELECT EXISTS (SELECT 1 FROM storage_days WHERE day < ?1 / 86400000 - 1)",
		`DELETE FROM storage_days WHERE (organization_id, day) IN (
			SELECT organization_id, day FROM storage_days INDEXED BY storage_days_by_day WHERE day < ?1 / 86400000 - 1 LIMIT 500)`,
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
				_, err := t.Exec(data.remove, now)
				return err
			})
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("delete %s: %w", data.what, failed))
		}
	}
	return err
}
