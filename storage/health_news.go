package storage

import (
	"net/url"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// maxHealthNews is how many deliveries of news about health an organization gets in a minute. Beyond that the news is in
// the audit log only; a replay of missed events brings it still.
const maxHealthNews = 10_000

// healthNews counts those deliveries. A transaction that was rolled back and repeated counts twice, which errs on the safe
// side. The zero value is empty.
type healthNews struct {
	minute int64
	made   map[int64]int // by organization
}

// take reports whether an organization may have so many deliveries more, and counts them. Once it may not, it may have
// none until the minute is over; first says that this has just begun.
func (n *healthNews) take(organization int64, deliveries int, now int64) (ok, first bool) {
	if m := now / time.Minute.Milliseconds(); m != n.minute || n.made == nil {
		n.minute, n.made = m, map[int64]int{}
	}
	before := n.made[organization]
	n.made[organization] += deliveries
	return n.made[organization] <= maxHealthNews, before <= maxHealthNews
}

// newsReceivers returns those of the subscriptions that get news about the health of another one: the healthy ones at
// other hosts. What fails for one subscription mostly fails for all at its host, and each failure would make more news.
func (s *Store) newsReceivers(t *tx, organization, about int64, subscriptions []int64) ([]int64, error) {
	subject, err := t.subscriber(about)
	if err != nil {
		return nil, err
	}
	to := subscriptions[:0]
	for _, row := range subscriptions {
		sub, err := t.subscriber(row)
		if err != nil {
			return nil, err
		}
		if sub.Status == webhook.Healthy && sub.Host != subject.Host {
			to = append(to, row)
		}
	}
	ok, first := t.news.take(organization, len(to), t.Now())
	if ok {
		return to, nil
	}
	if first {
		s.log.Warn("news about the health of subscriptions is in the audit log only: the organization has had too much of it in this minute",
			"organization", organization, "subscription", subject.ID, "deliveries_a_minute", maxHealthNews)
	}
	return nil, nil
}

// normalHost returns the host of an address, in lower case, without port and closing dot.
func normalHost(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
}
