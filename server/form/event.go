package form

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Limits of publishing.
const (
	maxBatch          = 1000 // events
	maxIdempotencyKey = 255  // characters
)

// CodeReservedType is the code of an event type that only Keyhook publishes.
const CodeReservedType = "reserved_type"

// Event reads the body of a request that publishes one event. header has the values of Idempotency-Key. Errors are faults.
func (f *Form) Event(header []string) (webhook.NewEvent, error) {
	f.Require("type", "data")
	e := f.event()
	if len(header) > 0 {
		if len(header) > 1 || !ValidIdempotencyKey(header[0]) {
			f.Refuse("idempotency_key", "invalid",
				"The header Idempotency-Key may occur only once, with 1 to %d visible characters.", maxIdempotencyKey)
		}
		if e.IdempotencyKey != "" && header[0] != e.IdempotencyKey {
			f.Refuse("idempotency_key", "conflicting", "This differs from the header Idempotency-Key; send only one of them.")
		}
		e.IdempotencyKey = header[0]
	}
	if err := f.Err(); err != nil {
		return e, err
	}
	return withDigest(e), nil
}

// Events reads the body of a request that publishes a batch. Errors are faults.
func (f *Form) Events(header []string) ([]webhook.NewEvent, error) {
	f.Require("events")
	if len(header) > 0 {
		// A client would believe that an ignored key protects it.
		f.Refuse("idempotency_key", "not_for_batches",
			"The header Idempotency-Key names one event; in a batch, each event has its own idempotency_key.")
	}
	values := f.array("events", maxBatch, `an array of events, such as [{"type": "order.created", "data": {}}]`)
	if values != nil && (len(values) == 0 || len(values) > maxBatch) {
		f.Refuse("events", "out_of_range", "A batch has 1 to %d events.", maxBatch)
		values = nil
	}
	events := make([]webhook.NewEvent, 0, len(values))
	keys := map[string]int{} // the first event with the key
	item := &Form{}
	item.members = item.first[:0]
	for i, value := range values {
		if f.full() {
			break
		}
		if err := f.readEvent(item, "events."+strconv.Itoa(i), value); err != nil {
			return nil, err
		}
		e := item.event()
		if e.IdempotencyKey != "" {
			if first, taken := keys[e.IdempotencyKey]; taken {
				item.Refuse("idempotency_key", "duplicate", "Event %d of this batch has the same key; give each event its own key.", first)
			} else {
				keys[e.IdempotencyKey] = i
			}
		}
		item.refuseUnknown()
		f.problems = append(f.problems, item.problems...) // a few more than a response lists
		events = append(events, withDigest(e))
	}
	return events, f.Err()
}

// readEvent makes item the form of the next event of a batch. It reuses the memory of the event before. Faults: TooLarge if the
// event is too large, Malformed if a name occurs twice.
func (f *Form) readEvent(item *Form, name string, value jsontext.Value) error {
	if len(value) > webhook.MaxEvent {
		return fault.New(fault.TooLarge, "too_large", "%[2]s is too large; an event may have at most %[1]d bytes.", webhook.MaxEvent, name)
	}
	*item = Form{members: item.members[:0], missing: item.missing[:0], path: name + ".", compact: f.compact}
	if f.typed(name, value, jsontext.KindBeginObject, `an event, such as {"type": "order.created", "data": {}}`) == nil {
		return nil
	}
	// The whole body is known to be valid JSON, so this pass omits the checks that were made already.
	members, err := parseObject(item.members, value, jsontext.AllowDuplicateNames(!f.unchecked), jsontext.AllowInvalidUTF8(true))
	switch {
	case errors.Is(err, errTooManyFields):
		f.refuseFields(name)
		return nil
	case errors.Is(err, jsontext.ErrDuplicateName):
		return notJSON(err, name+".", value)
	case err != nil:
		return fmt.Errorf("split %s: %w", name, err)
	}
	item.members = members
	item.Require("type", "data")
	return nil
}

func (f *Form) event() webhook.NewEvent {
	return webhook.NewEvent{
		Data: f.Object("data", webhook.MaxEvent), Type: Or(f.EventType("type"), ""),
		IdempotencyKey: Or(f.Matching("idempotency_key", f.Line("idempotency_key", maxIdempotencyKey),
			"begin and end without a space, because HTTP removes such spaces from the header Idempotency-Key",
			func(key string) bool { return strings.Trim(key, " ") == key }), ""), Path: f.path,
	}
}

// EventType returns the type of an event that is not Keyhook's own.
func (f *Form) EventType(name string) *string {
	text := f.Text(name, webhook.MaxEventType)
	if text == nil || f.RefuseEventType(name, *text) {
		return nil
	}
	return text
}

// RefuseEventType adds a problem if a text cannot be the type of an event that is not Keyhook's own.
func (f *Form) RefuseEventType(name, text string) (isRefused bool) {
	switch {
	case !webhook.ValidType(text):
		f.Refuse(name, "invalid", "This must be an event type such as user.created: %s.", typeRule)
	case access.IsAuditType(text), text == webhook.TestType:
		f.Refuse(name, CodeReservedType, "Only Keyhook publishes events of this type; choose another type, such as app.%s.", text)
	default:
		return false
	}
	return true
}

const typeRule = "lower-case letters, digits and _, in words with dots between them, beginning with a letter"

// Object returns a JSON object of at most max bytes, without white space. Its numbers and strings are unchanged.
func (f *Form) Object(name string, max int) []byte {
	value := f.typed(name, f.take(name), jsontext.KindBeginObject, anObject)
	if value == nil {
		return nil
	}
	if !f.compact {
		_ = value.Compact()        // the body is valid JSON
		f.find(name).value = value // Compact has changed its bytes, and the form may be read again
	}
	if len(value) > max {
		f.Refuse(name, "too_long", "This may have at most %d bytes, without white space.", max)
		return nil
	}
	return value
}

// ValidIdempotencyKey reports whether an event can have this idempotency key.
func ValidIdempotencyKey(key string) bool {
	return strings.TrimSpace(key) != "" && utf8.RuneCountInString(key) <= maxIdempotencyKey && utf8.ValidString(key) && !strings.ContainsFunc(key, isInvisible)
}

// withDigest sets the digest of an event with an idempotency key. The digest distinguishes a repeated event from another event
// with the same key.
func withDigest(e webhook.NewEvent) webhook.NewEvent {
	if e.IdempotencyKey == "" {
		return e
	}
	h := sha256.New()
	h.Write([]byte(e.Type))
	h.Write([]byte{0}) // no type contains it, so two different events never give the same bytes
	h.Write(e.Data)
	h.Sum(e.Digest[:0])
	return e
}

// EventData returns the data of an event from the body that is delivered.
func EventData(body []byte) (json.RawMessage, error) {
	members, err := parseObject(make([]member, 0, 8), body, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, fmt.Errorf("split envelope: %w", err)
	}
	f := Form{members: members}
	return json.RawMessage(f.take("data")), nil
}

// EventTypes returns event types and prefixes, without duplicates.
func (f *Form) EventTypes(name string) *webhook.Types {
	list := f.Strings(name, eventTypes)
	if list == nil {
		return nil
	}
	types := make(webhook.Types, 0, len(list))
	for _, e := range list {
		switch {
		case e.Text == "*", e.Text == "**", e.Text == "*.*":
			f.Refuse(e.Field, "invalid", "An empty list means every event type: send [] instead of [%q].", e.Text)
		case !webhook.ValidPattern(e.Text):
			f.Refuse(e.Field, "invalid", "This must be an event type such as user.created, or a prefix such as user.*: %s; a * only after the last dot.", typeRule)
		}
		types = append(types, e.Text)
	}
	types = types.Unique()
	if len(types) > webhook.MaxEventTypes {
		f.Refuse(name, "too_many", "This may have at most %d event types.", webhook.MaxEventTypes)
	}
	return &types
}
