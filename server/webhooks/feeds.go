package webhooks

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	maxFeedPage = 100
	maxFeedWait = 30               // seconds
	feedMargin  = 15 * time.Second // how much longer than its wait a request may take
)

type feedBody struct {
	Data       []feedItemBody `json:"data"`
	NextCursor string         `json:"next_cursor"`
	HasMore    bool           `json:"has_more"`
}

type feedItemBody struct {
	Cursor    string            `json:"cursor"`
	EventID   string            `json:"event_id"`
	Type      string            `json:"type"`
	Timestamp exchange.Time     `json:"timestamp"`
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body"` // the exact bytes that are signed
}

// ReadFeed responds with the next events of a subscription, for a program that reads them instead of receiving them. It waits for the
// first one if the request says so.
func (h Endpoints) ReadFeed(x *exchange.Exchange, id string) error {
	q := &x.Query
	r := webhook.FeedRequest{Limit: q.Integer("limit", maxFeedPage, 1, maxFeedPage)}
	wait := time.Duration(q.Integer("wait", 0, 0, maxFeedWait)) * time.Second
	r.Since, _ = q.Period()
	after := q.Cursor("after", feedName(id))
	r.After = webhook.FeedPosition{Row: after.Row, At: after.At, Expired: after.Mark, Since: after.Since}
	if err := q.Err(); err != nil {
		return err
	}
	if r.Since != 0 && r.After.Row != 0 {
		return fault.New(fault.Invalid, "validation_failed", "Give after or since, but not both: after is where the last read ended, and since is a time to begin at.")
	}
	ctx, cancel := x.LongContext(wait + feedMargin)
	defer cancel()
	page, err := h.feedPage(ctx, x, id, r)
	if err == nil && wait > 0 && len(page.Events) == 0 && !page.More {
		page, err = h.awaitFeed(ctx, x, id, r, wait)
	}
	if err != nil {
		return err
	}
	return h.signFeed(x, id, page)
}

func (h Endpoints) feedPage(ctx context.Context, x *exchange.Exchange, id string, r webhook.FeedRequest) (webhook.FeedPage, error) {
	r.WithoutAudit = !x.Principal.Can(access.AuditRead)
	return h.Store.Feed(ctx, x.Organization(), id, r)
}

// awaitFeed reads again after each event of the organization, until it finds one for this reader. It returns an empty page at the end of
// the wait, at a stop of the server, and if another reader takes the place.
func (h Endpoints) awaitFeed(ctx context.Context, x *exchange.Exchange, id string, r webhook.FeedRequest, wait time.Duration) (webhook.FeedPage, error) {
	published, leave, err := h.Store.AwaitEvents(x.Organization())
	if err != nil {
		x.SetHeader("Retry-After", strconv.Itoa(maxFeedWait))
		return webhook.FeedPage{}, err
	}
	defer leave()
	end := time.After(wait)
	for goesOn := true; ; {
		page, err := h.feedPage(ctx, x, id, r)
		if err != nil || len(page.Events) > 0 || page.More || !goesOn {
			return page, err
		}
		r.After = page.Next // since stays: it may be in the future
		select {
		case _, goesOn = <-published:
		case <-end:
			goesOn = false
		case <-h.Stopping:
			return page, nil
		case <-ctx.Done():
			return page, context.Cause(ctx)
		}
		if err := x.Caller.Recheck(); err != nil {
			return page, err
		}
	}
}

func (h Endpoints) signFeed(x *exchange.Exchange, id string, page webhook.FeedPage) error {
	cursor := func(p webhook.FeedPosition) string {
		position := form.Position{Row: p.Row, At: p.At, Since: p.Since}
		if p.Expired > p.Row {
			position.Mark = p.Expired
		}
		return form.Cursor(feedName(id), position)
	}
	signed, err := sender.New(sender.Options{HeaderPrefix: h.HeaderPrefix}).Headers(page.Target, page.Events)
	if err != nil {
		return fault.New(fault.Conflict, "secret_unusable", "The signing secret cannot be used. Rotate it.").Because(err)
	}
	body := feedBody{Data: make([]feedItemBody, len(page.Events)), NextCursor: cursor(page.Next), HasMore: page.More}
	for i, e := range page.Events {
		body.Data[i] = feedItemBody{
			Cursor: cursor(webhook.FeedPosition{Row: e.Event, At: e.EventAt, Expired: page.Next.Expired, Since: page.Since}), EventID: e.EventID, Type: e.EventType, Timestamp: exchange.Time(e.EventAt),
			Headers: flat(signed[i]), Body: string(e.Body),
		}
	}
	x.NoStore()
	return x.OK(body)
}

// flat writes the headers of Standard Webhooks in lower case, as that document does, because names in JSON have an exact case.
func flat(h http.Header) map[string]string {
	values := make(map[string]string, len(h))
	for name := range h {
		field := name
		if strings.HasPrefix(name, "Webhook-") {
			field = strings.ToLower(name)
		}
		values[field] = h.Get(name)
	}
	return values
}

// feedName names the feed of a subscription, so that the cursor of another one is refused.
func feedName(subscription string) string { return "feed\n" + subscription }
