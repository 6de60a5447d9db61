package webhook

import (
	"strconv"
	"time"
)

// MaxEvent bounds a published event, in bytes of its request body.
const MaxEvent = 256 << 10

// TestType is the type of the event that a test delivery carries.
const TestType = "webhook_test"

// Event is something that happened, stored with the exact bytes that are sent.
type Event struct {
	RowID          int64  `db:"id"`
	ID             string `db:"-"`
	OrganizationID string `db:"organization_public_id"`
	Type           string `db:"type"`
	At             int64  `db:"created_at"`
	Body           []byte `db:"body"` // the envelope, sent byte for byte on every attempt
	Deliveries     int    `db:"deliveries"`
}

// NewEvent is an event to publish. Data is a compact JSON object. An empty IdempotencyKey means none; with one, Digest
// tells a repetition from another event under the same key.
type NewEvent struct {
	Type           string
	Data           []byte
	IdempotencyKey string
	Digest         [32]byte
}

// Published is the answer to a publisher. Replayed says that it is the first answer given again.
type Published struct {
	ID         string
	Type       string
	At         int64
	Deliveries int
	Replayed   bool
}

// AppendEnvelope appends the body of a delivery. The id, type and organization hold no character that JSON escapes.
func AppendEnvelope(dst []byte, id, eventType string, at int64, organization string, data []byte) []byte {
	dst = append(dst, `{"id":"`...)
	dst = append(dst, id...)
	dst = append(dst, `","type":"`...)
	dst = append(dst, eventType...)
	dst = append(dst, `","timestamp":"`...)
	dst = AppendTime(dst, at)
	dst = append(dst, `","organization_id":"`...)
	dst = append(dst, organization...)
	dst = append(dst, `","data":`...)
	dst = append(dst, data...)
	return append(dst, '}')
}

// TimeFormat is RFC 3339 in UTC with milliseconds: how every time is written.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// AppendTime appends a time in TimeFormat.
func AppendTime(dst []byte, at int64) []byte {
	return time.UnixMilli(at).UTC().AppendFormat(dst, TimeFormat)
}

// DeliveryState is where a delivery stands.
type DeliveryState uint8

// The states of a delivery, as they are stored. Only Pending is looked for again.
const (
	Pending   DeliveryState = iota // to be sent, or to be sent again
	Delivered                      // a 2xx answer
	Exhausted                      // attempts used up
	Dropped                        // its subscription was removed
)

// String returns the state's public name.
func (s DeliveryState) String() string {
	switch s {
	case Pending:
		return "pending"
	case Delivered:
		return "delivered"
	case Exhausted:
		return "exhausted"
	case Dropped:
		return "dropped"
	}
	return "state " + strconv.Itoa(int(s))
}

// Delivery is one event on its way to one subscription, as the publisher sees it.
type Delivery struct {
	SubscriptionID string        `db:"subscription_public_id"`
	State          DeliveryState `db:"state"`
	Attempts       int           `db:"attempts"`
	DueAt          int64         `db:"due_at"` // while Pending
}
