package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// kind is a sort of value on the command line. What can be known to be wrong without asking the server is refused before
// anything is sent.
type kind struct {
	name    string                         // in the help
	read    func(text string) (any, error) // what the API is sent; an error says what to write instead
	bare    string                         // the value of a flag without one
	several bool                           // may be given again, which adds to it
	choices []string                       // for completion
	source  string                         // for completion: the list of the API whose items it names
	stdin   bool                           // "-" reads it from the standard input
}

// line is text on one line.
var line = kind{name: "text", read: func(text string) (any, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("it is empty")
	}
	return prose.read(text)
}}

// prose is text that may be empty.
var prose = kind{name: "text", read: func(text string) (any, error) {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
		return nil, errors.New("it holds a control character")
	}
	return text, nil
}}

// clearable is text on a line, or nothing, which is null to the API and takes away what was there.
var clearable = kind{name: "text", read: func(text string) (any, error) {
	if text == "" {
		return nil, nil
	}
	return line.read(text)
}}

// yes is a switch.
var yes = kind{name: "bool", bare: "true", choices: []string{"true", "false"}, read: func(text string) (any, error) {
	if text != "true" && text != "false" {
		return nil, errors.New("it takes true or false")
	}
	return text == "true", nil
}}

// count is a whole number within bounds.
func count(least, most int64) kind {
	return kind{name: "n", read: func(text string) (any, error) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("it takes a whole number from %d to %d", least, most)
		}
		return n, nil
	}}
}

// unlimitable is a count, or the word for no limit, which is null to the API.
func unlimitable(least, most int64) kind {
	limited := count(least, most)
	return kind{name: "n", choices: []string{"unlimited"}, read: func(text string) (any, error) {
		if text == "unlimited" {
			return nil, nil
		}
		n, err := limited.read(text)
		if err != nil {
			return nil, fmt.Errorf("%w, or unlimited", err)
		}
		return n, nil
	}}
}

// items are words, each beside the next or in a flag of its own. Empty is none of them.
var items = kind{name: "list", several: true, read: func(text string) (any, error) {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	if words == nil {
		words = []string{}
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return nil, errors.New("it holds a control character")
	}
	return words, nil
}}

// scope is at least one word, and one string to the API.
var scope = kind{name: "permissions", several: true, source: pathPermissions, read: func(text string) (any, error) {
	words, err := items.read(text)
	if err == nil && len(words.([]string)) == 0 {
		err = errors.New("it is empty: name permissions, as events:write")
	}
	if err != nil {
		return nil, err
	}
	return strings.Join(words.([]string), " "), nil
}}

// choice is one of a few words.
func choice(words ...string) kind {
	return kind{name: strings.Join(words, "|"), choices: words, read: func(text string) (any, error) {
		if slices.Contains(words, text) {
			return text, nil
		}
		return nil, fmt.Errorf("it takes one of %s", strings.Join(words, ", "))
	}}
}

// span reads how long something lasts.
func span(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("it takes a time with its unit, as 90s, 30m or 720h")
	}
	return d, nil
}

// seconds is how long something lasts, in whole seconds to the API.
func seconds(most time.Duration) kind {
	return kind{name: "duration", read: func(text string) (any, error) {
		d, err := span(text)
		if err == nil && (d < 0 || d > most || d%time.Second != 0) {
			err = fmt.Errorf("it takes whole seconds from 0s to %gh", most.Hours())
		}
		return int64(d / time.Second), err
	}}
}

// later is a moment that lies so far in the future.
var later = kind{name: "duration", read: func(text string) (any, error) {
	d, err := span(text)
	if err == nil && d <= 0 {
		err = errors.New("it takes more than 0s")
	}
	return stamp(time.Now().Add(d)), err
}}

// moment is a time.
var moment = kind{name: "time", read: func(text string) (any, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, errors.New("it takes a time, as 2030-01-31T12:00:00Z")
	}
	if year := at.UTC().Year(); year < 1 || year > 9999 {
		return nil, errors.New("it takes a time before the year 10000")
	}
	return stamp(at), nil
}}

// past is a time, or how long ago it was.
var past = kind{name: "time|duration", read: func(text string) (any, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return stamp(time.Now().Add(-d)), nil
	}
	at, err := moment.read(text)
	if err != nil {
		return nil, fmt.Errorf("%w, or how long ago, as 24h", err)
	}
	return at, nil
}}

func stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }

// document is a JSON object, or "-" for the one on the standard input.
var document = kind{name: "json", stdin: true, read: func(text string) (any, error) {
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return nil, errors.New("it takes a JSON object, as '{\"number\": 1001}'")
	}
	return raw.read(text)
}}

// raw is a JSON value of any form.
var raw = kind{name: "json", stdin: true, read: func(text string) (any, error) {
	var value json.RawMessage
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return nil, fmt.Errorf("it takes JSON: %w", err)
	}
	return value, nil
}}

// credential is a key, better read from the standard input than seen by all in the list of processes.
var credential = kind{name: "key", stdin: true, read: func(text string) (any, error) {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("it takes an API key, as svc_…")
	}
	return text, nil
}}
