package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// object is a JSON object of a response, with its members in the order of the response.
type object []member

type member struct {
	name  string
	value json.RawMessage
}

func parseObject(body []byte) (object, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil, fault.Advise(errors.New("the response is not a JSON object, so it does not come from Keyhook"), client.AdviceURL)
	}
	var o object
	for decoder.More() {
		name, err := decoder.Token()
		m := member{name: fmt.Sprint(name)}
		if err = errors.Join(err, decoder.Decode(&m.value)); err != nil {
			return nil, fmt.Errorf("read the response: %w", err)
		}
		o = append(o, m)
	}
	return o, nil
}

// absent is the text for a value that is null, empty or not there.
const absent = "-"

// absentMeans has better texts for members where null, or an empty list, has a meaning.
var absentMeans = map[string]string{
	"api_rate_limit_per_minute": "unlimited", "rate_limit_per_second": "unlimited",
	"max_subscriptions": fmt.Sprint(access.MostSubscriptions, " (maximum)"), "max_api_keys": fmt.Sprint(access.MostAPIKeys, " (maximum)"),
	"max_stored_bytes_per_day": "unlimited",
	"event_types":              "every type", "expires_at": "never", "last_used_at": "never",
}

// text returns the text of a member. A name with a dot is a member of a member.
func (o object) text(name string) string {
	first, rest, isNested := strings.Cut(name, ".")
	for _, m := range o {
		if m.name != first {
			continue
		}
		if !isNested {
			return m.text()
		}
		inner, _ := parseObject(m.value) // another value has no members
		return inner.text(rest)
	}
	return absent
}

// flat returns the object with the members of these members in their place.
func (o object) flat(names []string) (flat object) {
	for _, m := range o {
		inner, err := parseObject(m.value)
		if !slices.Contains(names, m.name) || err != nil {
			flat = append(flat, m)
			continue
		}
		for i := range inner {
			inner[i].name = m.name + "." + inner[i].name
		}
		flat = append(flat, inner.flat(names)...)
	}
	return flat
}

func (m member) text() string {
	text := textOf(m.value)
	if text == absent && absentMeans[m.name] != "" {
		return absentMeans[m.name]
	}
	return text
}

// objects returns the objects of a member that is a list. Another member has none.
func (o object) objects(name string) ([]object, error) {
	var list []json.RawMessage
	for _, m := range o {
		if m.name == name && json.Unmarshal(m.value, &list) == nil {
			return parseObjects(list)
		}
	}
	return nil, nil
}

func parseObjects(list []json.RawMessage) (objects []object, err error) {
	for _, item := range list {
		o, err := parseObject(item)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// textOf returns a value as text: a string as it is, the strings of a list with spaces between them, and any other value as JSON.
func textOf(value json.RawMessage) string {
	var text string
	var list []string
	switch {
	case string(value) == "null", string(value) == "{}":
		return absent
	case json.Unmarshal(value, &text) == nil:
		return cmp.Or(output.Escape(text), absent)
	case json.Unmarshal(value, &list) == nil:
		return cmp.Or(output.Escape(strings.Join(list, " ")), absent)
	}
	var compact bytes.Buffer
	_ = json.Compact(&compact, value) // the decoder has read it
	return output.Escape(compact.String())
}
