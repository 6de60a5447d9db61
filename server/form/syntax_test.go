package form_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/fault"
)

// messages returns the messages of the problems in an error.
func messages(err error) string {
	var text []string
	if refusal, is := errors.AsType[*fault.Error](err); is {
		for _, p := range refusal.Fields {
			text = append(text, p.Message)
		}
	}
	return strings.Join(text, "\n")
}

func TestSyntax(t *testing.T) {
	t.Parallel()
	const in = "The body is not valid JSON in line "
	for body, want := range map[string]string{
		`{'type':1}`:                    in + "1, column 2 (byte 1).",
		"{\n  \"data\": {\"a\": True}}": in + "2, column 17 (byte 18), in data.a.",
		`{"a":1,}`:                      in + "1, column 7 (byte 6)",
		`{"a":1`:                        in + "1, column 7 (byte 6)",
		"{\"name\":\"caf\xe9\"}":        in + "1, column 13 (byte 12), in name.",
		"\ufeff{}":                      in + "1, column 1 (byte 0).",
		`{"a":1} x`:                     "After the JSON object of the body, more text follows; send only one object.",
		`{} {}`:                         "more text follows",
		`[{}]`:                          "The body must be one JSON object, {…}, and not an array or another value.",
		`{"a":1,"a":2}`:                 `The body has "a" twice in one object; send each name once.`,
	} {
		if err := form.Parse([]byte(body)).Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", body, err, want)
		}
	}
}

func TestProposals(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"type":"1order","data":{}}`:             "beginning with a letter.",
		`{"event":"a","data":{},"idempotency":1}`: "This field is unknown; the fields are data, idempotency_key, type.",
	} {
		if _, err := form.Parse([]byte(body)).Event(nil); err == nil || !strings.Contains(messages(err), want) {
			t.Errorf("%s: %s, want %s", body, messages(err), want)
		}
	}
	for pattern, want := range map[string]string{"*.created": "a * only after the last dot."} {
		f := form.Parse([]byte(`{"event_types":["` + pattern + `"]}`))
		f.EventTypes("event_types")
		if got := messages(f.Err()); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", pattern, got, want)
		}
	}
	for until, valid := range map[string]bool{"2026-11-23T23:59:59.999Z": false, "2026-11-24T00:00:00Z": true} {
		q := form.ParseQuery("since=2026-11-24T00:00:00Z&until="+until, []string{"since", "until"})
		if q.Period(); q.Valid() != valid {
			t.Errorf("a period until %s is valid: %t", until, q.Valid())
		}
	}
}
