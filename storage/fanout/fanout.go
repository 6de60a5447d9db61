// Package fanout decides which subscriptions receive an event, and where attempts may begin. It keeps what it has read in memory,
// and does not know how subscriptions change: the caller tells it.
package fanout

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Cache is the writer's memory of subscriptions, from one transaction to the next: which events they receive, and where attempts
// may begin. Nobody else writes. So it is exact if every change of a subscription or plan invalidates its entries, and a rollback
// invalidates everything.
type Cache struct {
	subscriptions map[int64]*Subscription
	filters       map[int64]filter.Filter      // of these subscriptions, as many as fit
	conditions    int                          // bytes of the filters, about
	emptiedMinute int64                        // in which the filters last made room for others
	matching      map[int64]map[string][]int64 // by organization and event type
	matches       int                          // rows in matching, plus listCost for each list
	newsMinute    int64                        // in which healthNews are counted
	healthNews    map[int64]int                // deliveries of events about health, by organization
	probedEvery   time.Duration
	log           *slog.Logger
}

// New returns an empty cache. probedEvery is Policy.ProbeDisabled.
func New(probedEvery time.Duration, log *slog.Logger) *Cache {
	return &Cache{
		subscriptions: map[int64]*Subscription{}, filters: map[int64]filter.Filter{}, matching: map[int64]map[string][]int64{}, healthNews: map[int64]int{},
		probedEvery: probedEvery, log: log,
	}
}

// The limits of the cache: some tens of megabytes, for any number of types and subscriptions.
const (
	maxCached        = 50_000 // subscriptions, of about 300 bytes
	maxCachedMatches = 200_000
	listCost         = 20      // of a list of subscriptions, in rows
	maxUpdated       = 100     // lists that a change of one subscription updates
	maxConditions    = 8 << 20 // bytes of filters
	rowsPerRead      = 100     // subscriptions or filters that are not in memory
)

// ReadCost is about the cost of reading a filter, in filters that are in memory: 20 for a small one, 200 for the largest.
const ReadCost = 100

// Subscription has the columns of a subscription that fan-out and the attempts need. It has no filter: an event may have thousands of
// receivers, and their filters together are too large for memory.
type Subscription struct {
	webhook.Gate        // without the hold of the queue
	RowID        int64  `db:"id"`
	ID           string `db:"public_id"`
	Organization int64  `db:"organization_id"`
	Host         string `db:"host"`         // of the URL, normalized
	AuditEvents  bool   `db:"audit_events"` // the subscription receives audit events
	Ordered      bool   `db:"ordered"`
	Filtered     bool   `db:"-"`    // the subscription has a filter
	Feed         bool   `db:"feed"` // the subscription has no URL

	// The times of the last success and failure that the caller has stored since the subscription was read; 0 if none.
	SuccessAt int64 `db:"-"`
	FailureAt int64 `db:"-"`
}

// Invalidate removes these subscriptions from the cache. Without arguments it removes everything.
func (c *Cache) Invalidate(subscriptions ...int64) {
	if len(subscriptions) == 0 {
		c.forget()
		c.InvalidateTypes()
	}
	for _, row := range subscriptions {
		c.conditions -= c.filters[row].Size()
		delete(c.filters, row)
		delete(c.subscriptions, row)
	}
}

func (c *Cache) forget() {
	clear(c.subscriptions)
	clear(c.filters)
	c.conditions = 0
}

// InvalidateTypes removes the lists of subscriptions by event type.
func (c *Cache) InvalidateTypes() {
	clear(c.matching)
	c.matches = 0
}

// SetTypes says which types a subscription has now; nil if none, because it is deleted. The lists stay in memory: otherwise each of many
// changes would read all subscriptions of the organization again, for its own audit event.
func (c *Cache) SetTypes(organization, row int64, types *webhook.Types) {
	lists := c.matching[organization]
	if len(lists) > maxUpdated {
		for _, rows := range lists {
			c.matches -= listCost + len(rows)
		}
		delete(c.matching, organization)
		return
	}
	for eventType, rows := range lists {
		before := len(rows)
		rows = slices.DeleteFunc(rows, func(other int64) bool { return other == row })
		if types != nil && types.Want(eventType) {
			rows = append(rows, row)
		}
		lists[eventType] = rows
		c.matches += len(rows) - before
	}
}

// Subscription returns a subscription, as it is until the next change. One that does not exist counts as deleted.
func (c *Cache) Subscription(t *sqlite.Tx, row int64) (*Subscription, error) {
	if s, ok := c.subscriptions[row]; ok {
		return s, nil
	}
	if err := c.read(t, []int64{row}); err != nil {
		return nil, err
	}
	if s, ok := c.subscriptions[row]; ok {
		return s, nil
	}
	return &Subscription{Gate: webhook.Gate{Deleted: true}}, nil
}

// read reads subscriptions. If the cache is full, as many others make room. To forget all of them would have all read again.
func (c *Cache) read(t *sqlite.Tx, rows []int64) error {
	found, err := sqlite.All[struct {
		Subscription
		Filter filter.Filter `db:"filter"`
	}](t, `
		SELECT `+delivery.GateColumns+`, `+delivery.Deleted+` AS deleted, s.id, s.public_id, s.organization_id, s.url AS host, s.url = '' AS feed, s.audit_events, s.ordered, s.filter
		FROM subscriptions s JOIN organizations o ON o.id = s.organization_id JOIN plans p ON p.id = o.plan_id
		WHERE s.id IN (SELECT value FROM json_each(?))`, sqlite.RowList(slices.Values(rows)))
	if err != nil {
		return fmt.Errorf("read subscriptions: %w", err)
	}
	for other := range c.subscriptions { // in no order
		if len(c.subscriptions)+len(found) <= maxCached {
			break
		}
		c.Invalidate(other)
	}
	for _, row := range found {
		s := row.Subscription // a copy, which does not keep the filters in memory
		s.Host, s.ProbedEvery, s.Filtered = webhook.Hostname(s.Host), c.probedEvery, row.Filter != nil
		c.subscriptions[s.RowID] = &s
		if s.Filtered {
			c.keepFilter(t.Now(), s.RowID, row.Filter)
		}
	}
	return nil
}

// keepFilter keeps a filter in memory if there is room. Once a minute it makes room, so that the filters of some organizations do not
// keep out those of others for good. More often would make the filters of one event drive each other out, for each event again.
func (c *Cache) keepFilter(now, row int64, f filter.Filter) {
	if c.conditions+f.Size() > maxConditions {
		minute := now / time.Minute.Milliseconds()
		if minute == c.emptiedMinute {
			return
		}
		c.emptiedMinute, c.conditions = minute, 0
		clear(c.filters)
	}
	c.filters[row] = f
	c.conditions += f.Size()
}

// Matching returns the subscriptions of an organization to an event type, whether open or not. The patterns of one
// subscription do not overlap, so each subscription is in the list once. The list is valid until the next change.
func (c *Cache) Matching(t *sqlite.Tx, organization int64, eventType string) ([]int64, error) {
	if rows, ok := c.matching[organization][eventType]; ok {
		return rows, nil
	}
	rows, err := sqlite.All[int64](t, `
		SELECT subscription_id FROM subscription_patterns
		WHERE organization_id = ? AND pattern IN (SELECT value FROM json_each(?))`, organization, sqlite.TextList(webhook.TypePatterns(eventType)))
	if err != nil {
		return nil, fmt.Errorf("find subscriptions: %w", err)
	}
	if c.matches+listCost+len(rows) > maxCachedMatches {
		c.InvalidateTypes()
	}
	if c.matching[organization] == nil {
		c.matching[organization] = map[string][]int64{}
	}
	c.matching[organization][eventType] = rows
	c.matches += listCost + len(rows)
	return rows, nil
}

// Receivers returns the subscriptions that get an event of a type: none if the plan has no webhooks. The deliveries of
// disabled ones wait. Only subscriptions with audit_events get audit events. about is the subscription that the event is about, by
// row id, or 0. It never receives the event.
func (c *Cache) Receivers(t *sqlite.Tx, organization, about int64, eventType string) ([]*Subscription, error) {
	matching, err := c.Matching(t, organization, eventType)
	if err != nil {
		return nil, err
	}
	var unread []int64
	for _, row := range matching {
		if c.subscriptions[row] == nil {
			unread = append(unread, row)
		}
	}
	for rows := range slices.Chunk(unread, rowsPerRead) {
		if err := c.read(t, rows); err != nil {
			return nil, err
		}
	}
	isAudit := access.IsAuditType(eventType)
	to := make([]*Subscription, 0, len(matching))
	for _, row := range matching {
		sub, err := c.Subscription(t, row)
		if err != nil {
			return nil, err
		}
		if sub.Receives() && row != about && (sub.AuditEvents || !isAudit) {
			to = append(to, sub)
		}
	}
	return to, nil
}

// Filters returns how many filters these subscriptions have, and how many of them must be read; see ReadCost.
func (c *Cache) Filters(subscriptions []*Subscription) (n, unread int) {
	for _, sub := range subscriptions {
		if !sub.Filtered {
			continue
		}
		if n++; c.filters[sub.RowID] == nil {
			unread++
		}
	}
	return n, unread
}

// Passing returns those of the receivers whose filters an event passes and that get a delivery of it, and the number of those that do
// not get one, because they are feeds. It changes the slice.
func (c *Cache) Passing(t *sqlite.Tx, receivers []*Subscription, data []byte) (to []*Subscription, feeds int, err error) {
	refused, err := c.refused(t, receivers, filter.DocumentOf(data))
	to = receivers[:0]
	for _, sub := range receivers {
		switch {
		case refused[sub.RowID]:
		case sub.Feed:
			feeds++
		default:
			to = append(to, sub)
		}
	}
	return to, feeds, err
}

// refused returns the subscriptions whose filters an event does not pass. It reads the filters that are not in memory.
func (c *Cache) refused(t *sqlite.Tx, receivers []*Subscription, d *filter.Document) (map[int64]bool, error) {
	if n, _ := c.Filters(receivers); n == 0 {
		return nil, nil
	}
	refused, unread := map[int64]bool{}, []int64{}
	for _, sub := range receivers {
		if f, ok := c.filters[sub.RowID]; ok {
			refused[sub.RowID] = !f.Passes(d)
		} else if sub.Filtered {
			unread = append(unread, sub.RowID)
		}
	}
	for rows := range slices.Chunk(unread, rowsPerRead) {
		found, err := sqlite.All[struct {
			RowID  int64         `db:"id"`
			Filter filter.Filter `db:"filter"`
		}](t, "SELECT id, filter FROM subscriptions WHERE id IN (SELECT value FROM json_each(?))", sqlite.RowList(slices.Values(rows)))
		if err != nil {
			return nil, fmt.Errorf("read filters: %w", err)
		}
		for _, sub := range found {
			refused[sub.RowID] = !sub.Filter.Passes(d)
			c.keepFilter(t.Now(), sub.RowID, sub.Filter)
		}
	}
	return refused, nil
}

// maxHealthNews is how many deliveries of events about health an organization gets per minute. Further events are in
// the audit log only. A replay of missed events still delivers them.
const maxHealthNews = 10_000

// HealthNewsReceivers returns which of these receivers get an event about the health of another subscription: healthy ones at
// other hosts. A failure usually affects all subscriptions at a host, and each failing delivery would cause another such event. It
// changes the slice. After the first refusal, it refuses until the minute is over. A transaction that is repeated counts twice, so the
// limit is reached too early, never too late.
func (c *Cache) HealthNewsReceivers(t *sqlite.Tx, organization, about int64, receivers []*Subscription) ([]*Subscription, error) {
	subject, err := c.Subscription(t, about)
	if err != nil {
		return nil, err
	}
	to := slices.DeleteFunc(receivers, func(sub *Subscription) bool { return sub.Status != webhook.Healthy || sub.Host == subject.Host })
	if minute := t.Now() / time.Minute.Milliseconds(); minute != c.newsMinute {
		c.newsMinute = minute
		clear(c.healthNews)
	}
	before := c.healthNews[organization]
	c.healthNews[organization] += len(to)
	if before+len(to) <= maxHealthNews {
		return to, nil
	}
	if before <= maxHealthNews {
		c.log.Warn("too many events about the health of subscriptions in this minute; further ones are in the audit log only",
			"organization", organization, "subscription", subject.ID, "deliveries_a_minute", maxHealthNews)
	}
	return nil, nil
}

// The reads of old events ask the same as the cache, in SQL: which of them does a subscription want?

// Wanted is the condition for an event e of the types of a subscription. The parameters :exact and :prefix are from PatternLists;
// :excluded is a JSON array of types that it never receives.
const Wanted = `(e.type IN (SELECT value FROM json_each(:exact))
	  OR EXISTS (SELECT 1 FROM json_each(:prefix) prefix WHERE substr(e.type, 1, length(prefix.value)) = prefix.value))
	AND e.type NOT IN (SELECT value FROM json_each(:excluded))`

// Passes is the condition for an event e that passes a filter. The parameter :filter is its text; if it is empty, every event passes.
const Passes = `(:filter = '' OR passes(:filter, e.body))`

// PatternLists returns patterns as two JSON arrays: whole types and prefixes. AnyType is the empty prefix.
func PatternLists(patterns []string) (exact, prefix string) {
	types, beginnings := []string{}, []string{}
	for _, p := range patterns {
		if beginning, ok := strings.CutSuffix(p, "*"); ok {
			beginnings = append(beginnings, beginning)
		} else {
			types = append(types, p)
		}
	}
	return sqlite.TextList(types), sqlite.TextList(beginnings)
}

// RegisterPasses gives statements the function of Passes, once for all databases of the process.
var RegisterPasses = sync.OnceValue(func() error {
	type parsed struct {
		text string
		filter.Filter
	}
	var latest atomic.Pointer[parsed] // a statement asks with the same filter for each row
	return sqlite.RegisterFunction("passes", func(text string, body []byte) (bool, error) {
		p := latest.Load()
		if p == nil || p.text != text {
			f, err := filter.Parse(text)
			if err != nil {
				return false, err
			}
			p = &parsed{text, f}
			latest.Store(p)
		}
		return p.Passes(filter.DocumentOfBody(body)), nil
	})
})
