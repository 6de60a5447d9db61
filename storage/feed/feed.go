// Package feed owns the reads of programs that fetch the events of a subscription, and previews of what a filter would pass. It writes
// nothing, and keeps no position of a reader.
package feed

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	feedTime  = time.Second           // how long one read may search before it returns how far it came
	feedFill  = 50 * time.Millisecond // how long one read fills a page that has events
	feedSlice = 250                   // rows, at most
	feedBytes = 2 << 20               // of the bodies of one read; a single larger event is not possible
)

// Feeds reads events for programs.
type Feeds struct {
	queue   *queue.Queue
	history *history.History
	reads   *sqlite.Pool
	feeds   *scan.Reader
	ids     publicid.Maker
}

// New returns the feeds of an open database. Single rows come from reads, and many from feeds.
func New(q *queue.Queue, past *history.History, reads *sqlite.Pool, feeds *scan.Reader, ids publicid.Maker) *Feeds {
	return &Feeds{q, past, reads, feeds, ids}
}

// errCursorExpired is the fault of a reader that would miss events.
var errCursorExpired = fault.New(fault.Gone, "cursor_expired",
	"Events after this cursor were deleted: they are older than storage.retention_events, or the database was restored from a backup. "+
		"So the reader may have missed some. Read on without after, which begins with the oldest event, or with since.")

// Feed returns the next events of a subscription, oldest first: those that it wants now, whose filter passes now, and that were published
// while the plan had webhooks. It returns soon after the first events that it finds, and also after feedTime without one. If it fails later
// than that, it returns how far it came. The reader keeps the position; the store knows no readers. Faults: NotFound; Forbidden if the plan
// has no webhooks; Conflict if a person has paused the subscription, or if its secret cannot be decrypted; Gone if events after the
// position were deleted; Unavailable if too many reads of the organization are running.
func (s *Feeds) Feed(ctx context.Context, organization int64, id string, r webhook.FeedRequest) (page webhook.FeedPage, err error) {
	f, err := s.openFeed(ctx, organization, id, r)
	if err != nil {
		return page, err
	}
	start := f.at
	page.Target, page.Next, page.Since = f.target, start, start.Since
	rows, began := min(r.Limit, scan.CostlySlice), time.Now() // a reader of few events pays for few
	err = scan.Batches(ctx, feedTime, func() (goesOn bool, err error) {
		rows, err = s.feeds.Slice(ctx, organization, rows, feedSlice, func() error { return s.readFeed(ctx, &f, rows, &page) })
		return page.More && !f.full && (len(page.Events) == 0 || time.Since(began) < feedFill), err
	})
	if err != nil && page.Next != start { // the next read begins behind the slices that were read, and meets the failure again
		page.More, err = true, nil
	}
	return page, err
}

// feed is a read of a feed, and how far it got.
type feed struct {
	target webhook.Target
	at     webhook.FeedPosition
	limit  int
	bytes  int  // of the bodies that the page has
	full   bool // the next event does not fit on the page
	args   []any
}

// openFeed finds the subscription, checks that it may be read, and finds the position at which to begin.
func (s *Feeds) openFeed(ctx context.Context, organization int64, id string, r webhook.FeedRequest) (f feed, err error) {
	sub, err := s.history.Subscription(ctx, organization, id)
	if err != nil {
		return f, err
	}
	f = feed{at: r.After, limit: r.Limit}
	f.at.Since = max(r.Since, r.After.Since)
	f.target, err = s.queue.Target(ctx, sub.RowID)
	switch {
	case err != nil:
		return f, err
	case f.target.Deleted:
		return f, fault.Missing("subscription")
	case !sub.Webhooks:
		return f, quota.ErrNoWebhooks
	case sub.ByPerson():
		return f, fault.New(fault.Conflict, "paused", "A person has paused the subscription, so nobody can read its events.")
	case f.target.Secret.IsZero():
		return f, fault.New(fault.Conflict, "secret_unusable", "The signing secret cannot be decrypted, so events cannot be signed. Rotate the secret.")
	}
	exact, prefix := fanout.PatternLists(sub.EventTypes.Patterns())
	f.args = []any{
		sql.Named("organization", organization), sql.Named("subscription", sub.RowID), sql.Named("since", f.at.Since),
		sql.Named("exact", exact), sql.Named("prefix", prefix), sql.Named("filter", sub.Filter.Text()),
		sql.Named("excluded", history.HiddenTypes(r.WithoutAudit || !audit.Receives(sub))),
	}
	if r.After == (webhook.FeedPosition{}) {
		return f, s.beginFeed(ctx, &f, r.Since)
	}
	return f, s.checkPosition(ctx, &f)
}

// beginFeed finds the position of a reader without one: before the oldest event that is left since the creation of the subscription, or
// since a time. If none is left, it is never the number of an event of another organization, which may be deleted and used again.
func (s *Feeds) beginFeed(ctx context.Context, f *feed, since int64) error {
	after := int64(0)
	if since != 0 {
		period, err := s.history.EventPeriod(ctx, since, math.MaxInt64)
		if err != nil {
			return err
		}
		after = period.After
	}
	err := s.reads.Get(ctx, &f.at, `
		SELECT coalesce(
			(SELECT min(id) - 1 FROM events INDEXED BY events_by_organization WHERE organization_id = o.id AND id > max(s.birth, ?1)),
			max(s.birth, coalesce(o.expired_event, 0), coalesce((
				SELECT max(id) FROM events INDEXED BY events_by_organization WHERE organization_id = o.id), 0))) AS row,
			coalesce(o.expired_event, 0) AS expired
		FROM subscriptions s CROSS JOIN organizations o ON o.id = s.organization_id WHERE s.id = ?2`, after, f.target.Subscription)
	return sqlite.Missing(err, "subscription")
}

// checkPosition refuses a position that is not in this history: after a restore, other events have the numbers of lost ones. A position
// before the creation of the subscription becomes its creation.
func (s *Feeds) checkPosition(ctx context.Context, f *feed) error {
	var found struct {
		Birth int64 `db:"birth"`
		Known bool  `db:"known"`
	}
	if err := s.reads.Get(ctx, &found, `
		SELECT s.birth, ?1 <= s.birth OR ?1 <= coalesce(o.expired_event, 0) OR EXISTS (
			SELECT 1 FROM events e WHERE e.id = ?1 AND e.organization_id = o.id AND ?2 IN (0, e.created_at)) AS known
		FROM subscriptions s CROSS JOIN organizations o ON o.id = s.organization_id WHERE s.id = ?3`, f.at.Row, f.at.At, f.target.Subscription); err != nil {
		return sqlite.Missing(err, "subscription")
	}
	if !found.Known {
		return errCursorExpired
	}
	if f.at.Row < found.Birth {
		f.at = webhook.FeedPosition{Row: found.Birth, Since: f.at.Since}
	}
	return nil
}

// wantedInFeed is the condition for events of a feed, with the parameters of feed.args.
const wantedInFeed = `
	e.held IS NOT NULL AND e.created_at >= :since AND ` + fanout.Wanted + ` AND e.about IS NOT :subscription AND ` + delivery.NotTest + `
	AND ` + fanout.Passes

type looked struct {
	ID     int64 `db:"id"`
	At     int64 `db:"created_at"`
	Size   int   `db:"size"`
	Wanted bool  `db:"wanted"`
}

// readFeed looks at the next events, up to some rows, and adds those that it finds to the page. It moves the position to the last one
// that it looked at, or to the one with which the page is full. If it fails, the page stays as it was.
func (s *Feeds) readFeed(ctx context.Context, f *feed, rows int, page *webhook.FeedPage) error {
	var next []looked
	if err := s.feeds.Pool.List(ctx, &next, `
		SELECT e.id, e.created_at, length(e.body) AS size, `+wantedInFeed+` AS wanted
		FROM (SELECT id FROM events INDEXED BY events_by_organization
		      WHERE organization_id = :organization AND id > :after ORDER BY id LIMIT :most) next
		CROSS JOIN events e ON e.id = next.id ORDER BY next.id`,
		append(slices.Clip(f.args), sql.Named("after", f.at.Row), sql.Named("most", rows))...); err != nil {
		return fmt.Errorf("read a feed: %w", err)
	}
	from, found := f.at, []int64{}
	for _, e := range next {
		have := len(page.Events) + len(found)
		if f.full = e.Wanted && (have == f.limit || have > 0 && f.bytes+e.Size > feedBytes); f.full {
			break
		}
		f.at.Row, f.at.At = e.ID, e.At
		if e.Wanted {
			found, f.bytes = append(found, e.ID), f.bytes+e.Size
		}
	}
	events, err := s.readFound(ctx, *f, found)
	if err == nil {
		err = s.checkComplete(ctx, f.target.Organization, from)
	}
	if err != nil {
		return err
	}
	page.Events, page.Next, page.More = append(page.Events, events...), f.at, f.full || len(next) == rows
	if !page.More {
		page.Next.Since = 0
	}
	f.full = f.full || len(page.Events) == f.limit
	return nil
}

func (s *Feeds) readFound(ctx context.Context, f feed, found []int64) (events []webhook.Job, err error) {
	if len(found) == 0 {
		return nil, nil
	}
	if err := s.feeds.Pool.List(ctx, &events, `
		SELECT e.id AS event_id, e.type AS event_type, e.created_at AS event_at, e.body
		FROM events e WHERE e.id IN (SELECT value FROM json_each(?)) ORDER BY e.id`, sqlite.RowList(slices.Values(found))); err != nil {
		return nil, fmt.Errorf("read events of a feed: %w", err)
	}
	for i := range events {
		e := &events[i]
		e.Subscription, e.Organization, e.EventID = f.target.Subscription, f.target.Organization, s.ids.ID(access.EventID, e.Event, e.EventAt)
	}
	return events, nil
}

// checkComplete refuses a read that began at a position if retention has deleted a later event before the read. The read comes first, so
// what is deleted between the two is no loss. A gap that was there when the reader began is no loss either. Retention then deletes
// behind the gap, and the last event that was read goes before the ones after it.
func (s *Feeds) checkComplete(ctx context.Context, organization int64, from webhook.FeedPosition) error {
	lost, err := sqlite.One[bool](s.feeds.Pool.In(ctx), "organization", `
		SELECT coalesce(expired_event, 0) > max(?1, ?2) OR ?2 > ?1 AND ?3 <> 0 AND NOT EXISTS (SELECT 1 FROM events WHERE id = ?1)
		FROM organizations WHERE id = ?4`, from.Row, from.Expired, from.At, organization)
	if lost {
		return errCursorExpired
	}
	return err
}

const (
	previewEvents = 200 // the newest of an organization that a preview reads
	previewSample = 10  // of those that pass
)

// PreviewFilter says which of the newest events of an organization a subscription with these types and this filter would get. Faults:
// Unavailable if too many reads of the organization are running.
func (s *Feeds) PreviewFilter(ctx context.Context, organization int64, types webhook.Types, f filter.Filter, withoutAudit bool) (p webhook.Preview, err error) {
	exact, prefix := fanout.PatternLists(types.Patterns())
	rows, left, before := scan.CostlySlice, previewEvents, int64(math.MaxInt64)
	err = scan.Batches(ctx, feedTime, func() (more bool, err error) {
		var events []struct {
			ID     int64 `db:"id"`
			At     int64 `db:"created_at"`
			Wanted bool  `db:"wanted"`
			Passes bool  `db:"passes"`
		}
		most := min(rows, left)
		rows, err = s.feeds.Slice(ctx, organization, rows, previewEvents, func() error {
			return s.feeds.Pool.List(ctx, &events, `
				SELECT e.id, e.created_at, wanted, wanted AND `+fanout.Passes+` AS passes
				FROM (SELECT e.*, `+fanout.Wanted+` AND `+delivery.NotTest+` AS wanted FROM events e INDEXED BY events_by_organization
				      WHERE e.organization_id = :organization AND e.id < :before ORDER BY e.id DESC LIMIT :most) e ORDER BY e.id DESC`,
				sql.Named("organization", organization), sql.Named("filter", f.Text()), sql.Named("before", before), sql.Named("most", most),
				sql.Named("exact", exact), sql.Named("prefix", prefix), sql.Named("excluded", history.HiddenTypes(withoutAudit)))
		})
		for _, e := range events {
			before = e.ID
			if e.Wanted {
				p.Examined++
			}
			if e.Passes {
				p.Matched++
				if len(p.Sample) < previewSample {
					p.Sample = append(p.Sample, s.ids.ID(access.EventID, e.ID, e.At))
				}
			}
		}
		left -= len(events)
		return left > 0 && len(events) == most, err
	})
	return p, err
}
