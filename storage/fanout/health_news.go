package fanout

import (
	"time"

	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// maxHealthNews is how many deliveries of events about health an organization gets per minute. Further events are in
// the audit log only. A replay of missed events still delivers them.
const maxHealthNews = 10_000

// healthNewsLimit counts these deliveries. If a transaction is rolled back and repeated, it counts twice, so the limit is
// reached too early, never too late. The zero value is empty.
type healthNewsLimit struct {
	minute     int64
	deliveries map[int64]int // by organization
}

// allow counts further deliveries of an organization and reports whether it may have them. After the first refusal, it
// refuses until the minute is over. first is true for that first refusal.
func (n *healthNewsLimit) allow(organization int64, deliveries int, now int64) (ok, first bool) {
	if m := now / time.Minute.Milliseconds(); m != n.minute || n.deliveries == nil {
		n.minute, n.deliveries = m, map[int64]int{}
	}
	before := n.deliveries[organization]
	n.deliveries[organization] += deliveries
	return n.deliveries[organization] <= maxHealthNews, before <= maxHealthNews
}

// HealthNewsReceivers returns which of these receivers get an event about the health of another subscription: healthy ones at
// other hosts. A failure usually affects all subscriptions at a host, and each failing delivery would cause another such event. It
// changes the slice.
func (c *Cache) HealthNewsReceivers(t *sqlite.Tx, organization, about int64, receivers []int64) ([]int64, error) {
	subject, err := c.Subscription(t, about)
	if err != nil {
		return nil, err
	}
	to := receivers[:0]
	for _, row := range receivers {
		sub, err := c.Subscription(t, row)
		if err != nil {
			return nil, err
		}
		if sub.Status == webhook.Healthy && sub.Host != subject.Host {
			to = append(to, row)
		}
	}
	ok, first := c.healthNews.allow(organization, len(to), t.Now())
	if ok {
		return to, nil
	}
	if first {
		c.log.Warn("too many events about the health of subscriptions in this minute; further ones are in the audit log only",
			"organization", organization, "subscription", subject.ID, "deliveries_a_minute", maxHealthNews)
	}
	return nil, nil
}
