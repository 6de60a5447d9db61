package retention

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/sqlite"
)

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
