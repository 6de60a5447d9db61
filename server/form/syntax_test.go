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
	const inFirst = "The body is not valid JSON in line 1, column "
	for body, want := range map[string]string{
		`{'type':1}`:                    inFirst + "2 (byte 1): write names and texts in double quotes, not in single quotes.",
		`{type:1}`:                      "only true, false, null and numbers have none.",
		"{\n  \"data\": {\"a\": True}}": "in line 2, column 17 (byte 18), in data.a: write names",
		`{"a":1,}`:                      "remove this comma",
		`{"a":[1,]}`:                    "remove the comma before this",
		`{"a":1`:                        `the text ends too early; a ", a } or a ] is missing.`,
		`{"a":"x`:                       "the text ends too early",
		`{"a":1 "b":2}`:                 "a comma or a colon is missing before this.",
		`{"a":01}`:                      "write a number as 0.5, 10 or -3",
		`{"a":.5}`:                      "write a number as 0.5, 10 or -3",
		"// x\n{}":                      "JSON has no comments; remove this.",
		"{\"name\":\"caf\xe9\"}":        inFirst + "13 (byte 12), in name: this is not UTF-8; encode the text as UTF-8.",
		"\ufeff{}":                      "a byte order mark begins the text; leave it out.",
		`{"a":"\ud800"}`:                "in a: after a backslash stand only",
		"{\"a\":\"x\ny\"}":              `write a line break in a text as \n`,
		`{"a":1} x`:                     "After the JSON object of the body, more text follows; send only one object.",
		`{} {}`:                         "more text follows",
		`[{}]`:                          "The body must be one JSON object, {…}, and not an array or another value.",
		`{"a":1,"a":2}`:                 `The body has "a" twice in one object; send each name once.`,
	} {
		if err := form.Parse([]byte(body)).Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", body, err, want)
		}
	}
	for text, want := range map[string]string{
		`[1, true]`: "", ` "x" `: "", "": "the text ends too early", "{} x": "text follows the first value", `{"a":{"b":1,"b":2}}`: `"a.b" is there twice`,
	} {
		if got := form.JSONProblem([]byte(text)); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestProposals(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"type":"Order.Created","data":{}}`:      `in words with dots between them, beginning with a letter. Write "order.created".`,
		`{"type":"order-created","data":{}}`:      ` Write "order_created".`,
		`{"type":"orderCreated","data":{}}`:       ` Write "order_created".`,
		`{"type":"1order","data":{}}`:             "beginning with a letter.",
		`{"event":"a","data":{},"idempotency":1}`: "This field is unknown; the fields are data, idempotency_key, type.",
	} {
		if _, err := form.Parse([]byte(body)).Event(nil); err == nil || !strings.Contains(messages(err), want) {
			t.Errorf("%s: %s, want %s", body, messages(err), want)
		}
	}
	for pattern, want := range map[string]string{"Order.*": `Write "order.*".`, "*.created": "a * only after the last dot."} {
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
