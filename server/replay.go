package server

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// replayStore is what the endpoint that replays asks of the store.
type replayStore interface {
	// EventRetention is how long events are kept; 0 is for ever.
	EventRetention() time.Duration
	// Replay makes new deliveries of what a subscription has not got, and returns how many.
	Replay(ctx context.Context, actor access.Actor, organization int64, id string, r webhook.Replay) (int64, error)
	// CountReplay returns how many that would be.
	CountReplay(ctx context.Context, organization int64, id string, r webhook.Replay) (int64, error)
}

// replayLimit bounds how long a replay may take: a million events take a fraction of it. What it has made by then stays,
// and the same request goes on from there.
const replayLimit = 5 * time.Minute

// replays is the endpoint that sends a subscription again what it has not got.
type replays struct{ store replayStore }

func (h replays) replay(c *call) error {
	id, err := c.pathID("id", subscriptionID, aSubscription)
	if err != nil {
		return err
	}
	f, err := c.form()
	if err != nil {
		return err
	}
	f.Require("since")
	r := readReplay(f, h.store.EventRetention())
	dry := f.Bool("dry_run")
	if err := f.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.request.Context(), replayLimit)
	defer cancel()
	c.extend(replayLimit + writeTimeout)
	var n int64
	if dry != nil && *dry {
		n, err = h.store.CountReplay(ctx, c.organization(), id, r)
	} else {
		n, err = h.store.Replay(ctx, c.actor(), c.organization(), id, r)
	}
	if err != nil {
		return err
	}
	return c.write(http.StatusAccepted, "application/json", redeliveryBody{int(n)})
}

// readReplay reads what of which period is to be sent again, where events are kept for so long.
func readReplay(f *form.Form, kept time.Duration) webhook.Replay {
	r := webhook.Replay{Only: webhook.OnlyAll}
	now := time.Now()
	since, until := f.Time("since"), f.Time("until")
	switch {
	case since == nil:
	case since.After(now):
		f.Refuse("since", "in_the_future", "This must lie in the past.")
	case kept > 0 && since.Before(now.Add(-kept)):
		f.Refuse("since", codeBeyondRetention, "Events are kept for %s; the earliest time that can be asked for is %s.",
			lasting(kept), webhook.AppendTime(nil, earliest(now, kept).UnixMilli()))
	default:
		r.Since = since.UnixMilli()
	}
	if until != nil {
		r.Until = max(1, until.UnixMilli()) // 0 is the present
		if since != nil && !until.After(*since) {
			f.Refuse("until", "out_of_range", "This must be later than since.")
		}
	}
	if types := f.EventTypes("event_types"); types != nil {
		r.EventTypes = *types
	}
	if text := f.Text("only", form.MaxName); text != nil {
		switch r.Only = webhook.Only(*text); r.Only {
		case webhook.OnlyFailed, webhook.OnlyMissed, webhook.OnlyAll:
		default:
			f.Refuse("only", "invalid", "This must be one of %s, %s, %s.", webhook.OnlyFailed, webhook.OnlyMissed, webhook.OnlyAll)
		}
	}
	return r
}

// codeBeyondRetention says of a time that what was then may be gone.
const codeBeyondRetention = "beyond_retention"

// earliest is a time that can still be asked for when a caller has read it: up to two minutes after the edge of what is
// kept, on the minute.
func earliest(now time.Time, kept time.Duration) time.Time {
	edge := now.Add(-kept)
	if late := edge.Truncate(time.Minute).Add(2 * time.Minute); late.Before(now) {
		return late
	}
	return edge
}

// lasting writes how long something lasts: in days where they are whole.
func lasting(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == day:
		return "1 day"
	case d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + " days"
	}
	return d.String()
}
