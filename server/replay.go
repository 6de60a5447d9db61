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

// replayStore is the part of the store that the replay endpoint uses.
type replayStore interface {
	// EventsKept is how long events are kept; 0 means for ever.
	EventsKept() time.Duration
	// Replay creates new deliveries of events that a subscription did not receive, and returns how many.
	Replay(ctx context.Context, actor access.Actor, organization int64, id string, r webhook.Replay) (int64, error)
	// CountReplay returns how many deliveries Replay would create.
	CountReplay(ctx context.Context, organization int64, id string, r webhook.Replay) (int64, error)
}

// replayLimit is how long a replay may take. A million events take a fraction of it. If a replay is cut off, its deliveries
// stay, and the same request continues from there.
const replayLimit = 5 * time.Minute

// replays is the endpoint that sends events again that a subscription did not receive.
type replays struct{ store replayStore }

func (h replays) replay(x *exchange) error {
	id, err := x.pathID("id", subscriptionID, aSubscription)
	if err != nil {
		return err
	}
	f, err := x.form()
	if err != nil {
		return err
	}
	f.Require("since")
	r := readReplay(f, h.store.EventsKept())
	dry := f.Bool("dry_run")
	if err := f.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(x.request.Context(), replayLimit)
	defer cancel()
	x.extendDeadlines(replayLimit + writeTimeout)
	var n int64
	if dry != nil && *dry {
		n, err = h.store.CountReplay(ctx, x.organization(), id, r)
	} else {
		n, err = h.store.Replay(ctx, x.actor(), x.organization(), id, r)
	}
	if err != nil {
		return err
	}
	return x.write(http.StatusAccepted, "application/json", redeliveryBody{int(n)})
}

// readReplay reads which events of which period to send again. kept is how long events are kept.
func readReplay(f *form.Form, kept time.Duration) webhook.Replay {
	r := webhook.Replay{Only: webhook.OnlyAll}
	now := time.Now()
	since, until := f.Time("since"), f.Time("until")
	switch {
	case since == nil:
	case since.After(now):
		f.Refuse("since", "in_the_future", "This must be in the past.")
	case kept > 0 && since.Before(now.Add(-kept)):
		f.Refuse("since", codeBeyondRetention, "Events are kept for %s; give a time not before %s.",
			durationText(kept), webhook.AppendTime(nil, earliestRetained(now, kept).UnixMilli()))
	default:
		r.Since = since.UnixMilli()
	}
	if until != nil {
		r.Until = max(1, until.UnixMilli()) // 0 means now
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

// codeBeyondRetention is the code of a time whose events may have been deleted.
const codeBeyondRetention = "beyond_retention"

// earliestRetained is the time that an error suggests: a full minute, up to two minutes after the retention limit, so that it is
// still valid when the caller uses it.
func earliestRetained(now time.Time, kept time.Duration) time.Time {
	edge := now.Add(-kept)
	if late := edge.Truncate(time.Minute).Add(2 * time.Minute); late.Before(now) {
		return late
	}
	return edge
}

// durationText formats a duration, in days if it is a whole number of days.
func durationText(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == day:
		return "1 day"
	case d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + " days"
	}
	return d.String()
}
