package webhook

import (
	"strconv"
	"time"
)

// MaxEvent limits a published event, in bytes of the request body.
const MaxEvent = 256 << 10

// TestType is the event type of tests that send no example of the catalogue.
const TestType = "webhook_test"

// Event is a published event, stored with the exact bytes that are sent.
type Event struct {
	RowID                  int64   `db:"id"`
	ID                     string  `db:"-"`
	OrganizationID         string  `db:"organization_public_id"`
	OrganizationExternalID *string `db:"organization_external_id"` // now
	// OrganizationName is the name now.
	OrganizationName string `db:"organization_name"`
	Type             string `db:"type"`
	At               int64  `db:"created_at"`
	Test             bool   `db:"test"` // it was made to test one subscription
	Body             []byte `db:"body"` // the envelope, sent byte for byte in every attempt
	Deliveries       int    `db:"deliveries"`
	// States is set in lists only.
	States DeliveryStates `db:"-"`
	// IdempotencyKey is nil in lists, and for an event without a key.
	IdempotencyKey *string `db:"idempotency_key"`
}

// DeliveryStates counts the subscriptions of an event by the state of its delivery to them.
type DeliveryStates struct {
	Delivered int
	Pending   int
	Exhausted int
	Dropped   int
	Held      int // of the pending ones: the subscription is disabled
}

// NewEvent is an event to publish. Data is a compact JSON object. An empty IdempotencyKey is none. With a key, Digest
// distinguishes a repeated event from another event under the same key.
type NewEvent struct {
	Type           string
	Data           []byte
	IdempotencyKey string
	Digest         [32]byte
	Path           string // before the names of its fields in problems, such as "events.3."; empty if the body is the event
	Mark           Mark   // the store sets it
}

// Mark is what sets an event apart, as it is stored. Zero: nothing.
type Mark uint8

// The marks of events.
const (
	Test         Mark = 1 // it tests one subscription
	Uncatalogued Mark = 2 // there is a catalogue of event types, and its type was not in it
)

// Published is the response to a publisher. Repeated says that it repeats the response to an earlier request.
type Published struct {
	ID         string
	Type       string
	At         int64
	Deliveries int
	Held       int // of the deliveries, those to subscriptions that were disabled then; they wait
	Notice     Notice
	Mark       Mark // of the event
	Repeated   bool
}

// Notice says why an event has no delivery, or that its type is not in the catalogue.
type Notice string

// The notices. The zero value says nothing.
const (
	NoSubscription Notice = "no_subscription"
	PlanLacksHooks Notice = "plan_capability_required"
	AllFiltered    Notice = "all_filtered" // subscriptions want the type, but it passes the filter of none
	InFeed         Notice = "in_feed"      // only subscriptions without a URL have it
	UnknownType    Notice = "unknown_type" // there is a catalogue of event types, and the type is not in it
)

// OnlyFeeds is the number of filtered subscriptions of an event without a delivery that a feed has.
const OnlyFeeds = -1

// NoticeOf returns the notice of an event with that many deliveries. filtered counts the subscriptions whose filter it did not pass,
// or is OnlyFeeds.
func NoticeOf(deliveries, filtered int, planHasWebhooks bool, m Mark) Notice {
	switch {
	case deliveries == 0 && filtered > 0:
		return AllFiltered
	case deliveries == 0 && !planHasWebhooks:
		return PlanLacksHooks
	case m == Uncatalogued:
		return UnknownType
	case deliveries > 0:
		return ""
	case filtered == OnlyFeeds:
		return InFeed
	}
	return NoSubscription
}

// AppendEnvelope appends the body of a delivery. The id, type and organization have no character that JSON escapes.
func AppendEnvelope(dst []byte, id, eventType string, at int64, organization string, data []byte, m Mark) []byte {
	dst = append(dst, `{"id":"`...)
	dst = append(dst, id...)
	dst = append(dst, `","type":"`...)
	dst = append(dst, eventType...)
	dst = append(dst, `","timestamp":"`...)
	dst = AppendTime(dst, at)
	dst = append(dst, `","organization_id":"`...)
	dst = append(dst, organization...)
	dst = append(dst, '"')
	if m == Test {
		dst = append(dst, `,"test":true`...)
	}
	dst = append(dst, `,"data":`...)
	dst = append(dst, data...)
	return append(dst, '}')
}

// TimeFormat is RFC 3339 in UTC with milliseconds. All times in responses and deliveries have it.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// AppendTime appends a time in TimeFormat. Package time formats RFC 3339 without milliseconds several times as fast.
func AppendTime(dst []byte, at int64) []byte {
	t := time.UnixMilli(at).UTC()
	dst = t.AppendFormat(dst, time.RFC3339)
	ms := t.Nanosecond() / int(time.Millisecond)
	return append(dst[:len(dst)-1], '.', '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z')
}

// DeliveryState is the state of a delivery.
type DeliveryState uint8

// The states of a delivery, as they are stored. Only Pending deliveries are sent. While an attempt is in progress, the file has
// another number, but readers see the state that the delivery has if the attempt is taken back.
const (
	Pending   DeliveryState = iota // waits for its first attempt or a retry
	Delivered                      // the receiver responded with 2xx
	Exhausted                      // all attempts failed
	Dropped                        // discarded by an operator, or its subscription was deleted or lost the right to it
)

// String returns the state's public name.
func (s DeliveryState) String() string {
	if names := [...]string{"pending", "delivered", "exhausted", "dropped"}; int(s) < len(names) {
		return names[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// Delivery is one event for one subscription, as the publisher sees it.
type Delivery struct {
	RowID          int64         `db:"id"`
	SubscriptionID string        `db:"subscription_public_id"`
	State          DeliveryState `db:"state"`
	Attempts       int           `db:"attempts"`
	DueAt          int64         `db:"due_at"` // only while Pending
}

// Limits of the catalogue of event types.
const (
	MaxExample       = 64 << 10 // bytes of an example, and of a schema
	MaxCatalogue     = 1000     // types
	MaxCatalogueSize = 4 << 20  // bytes of all texts
)

// EventType is an event type: what the catalogue says about it, for all organizations, and when one organization published it.
type EventType struct {
	Type        string `db:"type"`
	Description string `db:"description"` // empty: the type is not in the catalogue
	Group       string `db:"event_group"` // empty: none
	Example     []byte `db:"example"`     // the data of an event, a JSON object; nil: none
	Schema      []byte `db:"schema"`      // a JSON object; nil: none
	LastSeenAt  *int64 `db:"last_seen_at"`
}

// EventTypeChange describes an event type in the catalogue. Nil leaves a field as it is, and an empty value removes it.
type EventTypeChange struct {
	Description, Group *string
	Example, Schema    *[]byte
}
