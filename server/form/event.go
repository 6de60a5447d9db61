package form

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
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

// codeReserved says of an event type that only Keyhook publishes events of it.
const CodeReservedType = "reserved_type"

// event reads the body of a publication; header is what Idempotency-Key says.
func (f *Form) Event(header []string) (webhook.NewEvent, error) {
	f.Require("type", "data")
	e := f.event()
	if len(header) > 0 {
		key := f.idempotencyHeader(header)
		if e.IdempotencyKey != "" && key != e.IdempotencyKey {
			f.Refuse("idempotency_key", "conflicting", "This differs from the header Idempotency-Key; give one of them.")
		}
		e.IdempotencyKey = key
	}
	if err := f.Err(); err != nil {
		return e, err
	}
	return withDigest(e), nil
}

// batch reads the body of a publication of several events.
func (f *Form) Events(header []string) ([]webhook.NewEvent, error) {
	f.Require("events")
	if len(header) > 0 {
		// Passed over in silence, it would look like protection.
		f.Refuse("idempotency_key", "not_for_batches",
			"The header Idempotency-Key names one event; in a batch, each event has its own idempotency_key.")
	}
	values := f.array("events", maxBatch)
	if values != nil && (len(values) == 0 || len(values) > maxBatch) {
		f.Refuse("events", "out_of_range", "A batch has 1 to %d events.", maxBatch)
		values = nil
	}
	events := make([]webhook.NewEvent, 0, len(values))
	keys := map[string]int{} // the first event that has it
	item := &Form{}
	for i, value := range values {
		if f.full() {
			break
		}
		if err := f.readEvent(item, "events."+strconv.Itoa(i), value); err != nil {
			return nil, err
		}
		e := item.event()
		if e.IdempotencyKey != "" {
			first, taken := keys[e.IdempotencyKey]
			if taken {
				item.Refuse("idempotency_key", "duplicate", "Event %d of this batch has the same key.", first)
			} else {
				keys[e.IdempotencyKey] = i
			}
		}
		item.refuseUnknown()
		f.problems = append(f.problems, item.problems...) // each holds a few more than are listed at most
		events = append(events, withDigest(e))
	}
	return events, f.Err()
}

// open has item read one event of a batch next; its members take the place of those of the event before. Faults: TooLarge
// where it exceeds the limit of an event, Malformed where it gives a name twice.
func (f *Form) readEvent(item *Form, name string, value jsontext.Value) error {
	if len(value) > webhook.MaxEvent {
		return fault.New(fault.TooLarge, "too_large", "The limit of one event is %d bytes, and %s is larger.", webhook.MaxEvent, name)
	}
	*item = Form{members: item.members[:0], path: name + ".", compact: f.compact}
	if value.Kind() != jsontext.KindBeginObject {
		f.Refuse(name, "wrong_type", "This must be an object.")
		return nil
	}
	// The whole body is known to be valid: the second look leaves out the checks that have been made.
	members, err := parseObject(item.members, value, jsontext.AllowDuplicateNames(!f.unchecked), jsontext.AllowInvalidUTF8(true))
	switch {
	case errors.Is(err, errTooManyFields):
		field := tooManyFields(name)
		f.Refuse(field.Field, field.Code, "%s", field.Message)
		return nil
	case errors.Is(err, jsontext.ErrDuplicateName):
		return notJSON(err, name+".")
	case err != nil:
		return fmt.Errorf("split %s: %w", name, err)
	}
	item.members = members
	item.Require("type", "data")
	return nil
}

// newEvent reads the fields of an event.
func (f *Form) event() webhook.NewEvent {
	e := webhook.NewEvent{Data: f.object("data")}
	if eventType := f.Text("type", webhook.MaxEventType); eventType != nil {
		e.Type = *eventType
		switch {
		case !webhook.ValidType(e.Type):
			f.Refuse("type", "invalid", "This must be an event type such as user.created.")
		case access.IsAuditType(e.Type), e.Type == webhook.TestType:
			f.Refuse("type", CodeReservedType, "Only Keyhook itself publishes events of this type; choose another, such as one with a dot: app.%s.", e.Type)
		}
	}
	if key := f.Line("idempotency_key", maxIdempotencyKey); key != nil {
		e.IdempotencyKey = *key
	}
	return e
}

// object returns a JSON object without white space; its numbers and strings stay as they were written.
func (f *Form) object(name string) []byte {
	value := f.take(name)
	if value == nil {
		return nil
	}
	if value.Kind() != jsontext.KindBeginObject {
		f.Refuse(name, "wrong_type", "This must be an object.")
		return nil
	}
	if !f.compact {
		if err := value.Compact(); err != nil {
			f.Refuse(name, "invalid", "This is not a JSON object.")
			return nil
		}
	}
	return value
}

// idempotencyHeader reads Idempotency-Key under the rules of the field.
func (f *Form) idempotencyHeader(values []string) string {
	key := values[0]
	if len(values) > 1 || strings.TrimSpace(key) == "" || utf8.RuneCountInString(key) > maxIdempotencyKey ||
		!utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl) {
		f.Refuse("idempotency_key", "invalid", "The header Idempotency-Key may be given once, with 1 to %d characters.", maxIdempotencyKey)
	}
	return key
}

// digested fills in what tells a repetition from another event under the same key.
func withDigest(e webhook.NewEvent) webhook.NewEvent {
	if e.IdempotencyKey == "" {
		return e
	}
	h := sha256.New()
	h.Write([]byte(e.Type))
	h.Write([]byte{0}) // no type holds it, so no other type and data come to the same bytes
	h.Write(e.Data)
	h.Sum(e.Digest[:0])
	return e
}

// envelopeData cuts the data of an event out of the body that is sent.
func EventData(body []byte) (json.RawMessage, error) {
	members, err := parseObject(nil, body, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, fmt.Errorf("split envelope: %w", err)
	}
	f := Form{members: members}
	return json.RawMessage(f.take("data")), nil
}

// eventTypes returns the event types and prefixes that a subscription wants, each once.
func (f *Form) EventTypes(name string) *webhook.Types {
	list := f.Strings(name)
	if list == nil {
		return nil
	}
	types := make(webhook.Types, 0, len(list))
	for _, e := range list {
		if !webhook.ValidPattern(e.Text) {
			f.Refuse(e.Field, "invalid", "This must be an event type such as user.created, or user.* for all that begin so.")
		}
		types = append(types, e.Text)
	}
	types = types.Unique()
	if len(types) > webhook.MaxEventTypes {
		f.Refuse(name, "too_many", "There may be at most %d.", webhook.MaxEventTypes)
	}
	return &types
}
