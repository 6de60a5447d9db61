package webhook

// Schedule says when the deliveries of a subscription are sent. The zero value sends none, like a deleted subscription.
type Schedule struct {
	Subscription
	FirstDue *int64 `db:"first_due"` // due time of the pending delivery that comes first; nil if none is pending
}

// NextAttempt returns the time of the next attempt of a delivery with that due time. It returns nil if the delivery waits for
// anything but a time after now: for a change of the subscription, its plan or the queue, for the probe of another delivery,
// or for a free slot.
func (s Schedule) NextAttempt(due *int64, now int64) *int64 {
	if due == nil || s.Shut() {
		return nil
	}
	at := *due
	if s.Status != Healthy {
		if s.FirstDue == nil || at != *s.FirstDue {
			return nil
		}
		at = max(at, s.ProbeAt)
	}
	if s.probeIsDue(now) {
		at = *due
	}
	if at <= now {
		return nil
	}
	return &at
}

// SentAttempt is an attempt with its request.
type SentAttempt struct {
	Attempt
	Body  []byte `db:"body"`
	URL   string `db:"url"`    // of the subscription now
	URLAt int64  `db:"url_at"` // since when the subscription has this URL
	// HeaderNames are the names of the subscription's own headers now; HeadersAt is since when it has them.
	HeaderNames HeaderNames `db:"header_names"`
	HeadersAt   int64       `db:"headers_at"`
}
