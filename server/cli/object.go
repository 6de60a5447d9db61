package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

// none stands in a table for what is not there.
const none = "-"

// record is a JSON object with its members in the order in which they were sent.
type record []member

type member struct {
	name  string
	value json.RawMessage
}

func parseObject(body []byte) (record, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("the answer is no JSON object, and so not one of Keyhook's: check --%s", client.FlagURL)
	}
	var r record
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		m := member{name: name.(string)}
		if err := decoder.Decode(&m.value); err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		r = append(r, m)
	}
	return r, nil
}

// missing is what stands in a table for null, or for an empty list, where that means something.
var missing = map[string]string{
	"api_rate_limit_per_minute": "unlimited", "rate_limit_per_second": "unlimited",
	"max_subscriptions": "5000 (the most)", "max_api_keys": "10000 (the most)", "max_stored_bytes_per_day": "unlimited",
	"event_types": "every type", "expires_at": "never", "last_used_at": "never",
}

// text returns a member as it stands in a table; with dots in the name, one within others.
func (r record) text(name string) string {
	first, rest, within := strings.Cut(name, ".")
	for _, m := range r {
		if m.name != first {
			continue
		}
		if !within {
			return m.text()
		}
		inner, err := parseObject(m.value)
		if err != nil {
			return none
		}
		return inner.text(rest)
	}
	return none
}

// text returns the value as it stands in a table.
func (m member) text() string {
	word := cell(m.value)
	if word == none && missing[m.name] != "" {
		return missing[m.name]
	}
	return word
}

// items returns the objects of a member that is a list of them.
func (r record) items(name string) (list []json.RawMessage) {
	for _, m := range r {
		if m.name == name {
			_ = json.Unmarshal(m.value, &list) // what is no list has no items
		}
	}
	return list
}

// cell writes a value for a table: text as it is, words of a list beside each other, and anything else as JSON.
func cell(value json.RawMessage) string {
	var text string
	var words []string
	switch {
	case string(value) == "null":
		return none
	case json.Unmarshal(value, &text) == nil:
		return cmp.Or(output.Escape(text), none)
	case json.Unmarshal(value, &words) == nil:
		return cmp.Or(output.Escape(strings.Join(words, " ")), none)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, value) != nil {
		return output.Escape(string(value))
	}
	return output.Escape(compact.String())
}
