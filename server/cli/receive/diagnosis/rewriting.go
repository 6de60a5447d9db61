package diagnosis

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/keyhook/keyhook/server/form"
)

// layouts are the ways in which libraries lay out JSON.
var layouts = []form.Layout{
	{},             // JSON.stringify, json.Marshal, Keyhook
	{Spaced: true}, // json.dumps
	{Indented: true},
}

// undoRewriting writes the JSON of the body as programs do that parse it and write it again. Numbers stay as they are.
func (d Delivery) undoRewriting(test try) {
	original := d.Body
	with := func(body []byte) {
		d.Body = body
		test(d, "body_reserialized", "The JSON was parsed and written again. The signature is over the same JSON, written in another way.", rawAdvice)
	}
	sorted := form.Rewrite(original, form.Layout{Sorted: true, Escapes: true})
	for _, text := range [][]byte{original, inOrderSent(original), sorted} {
		for _, layout := range layouts {
			for _, layout.Escapes = range []bool{true, false} {
				if written := form.Rewrite(text, layout); written != nil {
					with(written)
					with(escapeBeyondASCII(written))
				}
			}
		}
	}
}

// inOrderSent puts the members of an event in the order in which Keyhook sends them. It returns nil for other JSON.
func inOrderSent(text []byte) []byte {
	var event map[string]json.RawMessage
	names := []string{"id", "type", "timestamp", "organization_id", "data"}
	if json.Unmarshal(text, &event) != nil || len(event) != len(names) {
		return nil
	}
	var members []string
	for _, name := range names {
		if event[name] == nil {
			return nil
		}
		members = append(members, `"`+name+`":`+string(event[name]))
	}
	return []byte("{" + strings.Join(members, ",") + "}")
}

// escapeBeyondASCII does what Python's json.dumps does. JSON has such characters only within strings.
func escapeBeyondASCII(text []byte) []byte {
	var out []byte
	for _, unit := range utf16.Encode([]rune(string(text))) {
		if unit < utf8.RuneSelf {
			out = append(out, byte(unit))
		} else {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}
