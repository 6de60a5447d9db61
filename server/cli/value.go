package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/webhook"
)

// valueType is a type of value on the command line. It refuses wrong values before anything is sent, as far as that is
// possible without the server.
type valueType struct {
	name       string                         // in the help
	parse      func(text string) (any, error) // returns the JSON value for the API; an error says what the value must be
	whenBare   string                         // the value of a flag that is given without a value
	repeatable bool                           // a second flag adds to the first, after the separator
	separator  string                         // empty is a comma
	choices    []string                       // for shell completion
	listPath   string                         // for shell completion: the list of the API with the possible values
	fromStdin  bool                           // "-" reads the value from the standard input
	inFile     bool                           // of a flag: the text names a file with the value; "-" is the standard input
}

// wrong returns the error for a value that parse refused. Values that may come from the standard input may be secret or long, so
// the error does not show them.
func (v valueType) wrong(name, text string, err error) error {
	switch {
	case v.name == "json" && !strings.HasPrefix(strings.TrimSpace(text), "{"):
		return fmt.Errorf("%s %w; for a file, write - and then <FILE", name, err)
	case v.fromStdin:
		return fmt.Errorf("%s %w", name, err)
	}
	return wrongValue(name, text, err.Error())
}

// read parses an argument, or the standard input if the argument is "-".
func (v valueType) read(cmd *cobra.Command, text string) (any, error) {
	if !v.fromStdin || text != "-" {
		return v.parse(text)
	}
	all, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), client.MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read from the standard input: %w", err)
	}
	if len(all) > client.MaxBody {
		return nil, errors.New("must not be larger than 16 MiB")
	}
	return v.parse(strings.TrimSpace(string(all)))
}

// anyText is text that may be empty.
var anyText = valueType{name: "text", parse: func(text string) (any, error) {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
		return nil, errors.New("must not contain a control character")
	}
	return text, nil
}}

// someText is text that must not be empty.
var someText = valueType{name: "text", parse: func(text string) (any, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("must be text that is not empty")
	}
	return anyText.parse(text)
}}

// auditType is the type of an audit event. The server may know more types than this program.
var auditType = valueType{name: "text", choices: access.AuditTypes(), parse: someText.parse}

// valid returns the parser of a text that must be valid. requirement says what it must be.
func valid(isValid func(string) bool, requirement string) func(string) (any, error) {
	return func(text string) (any, error) {
		if !isValid(text) {
			return nil, errors.New(requirement)
		}
		return text, nil
	}
}

// orNull returns a parser for which one word is null for the API. Empty text removes the present value so.
func orNull(word string, parse func(string) (any, error)) func(string) (any, error) {
	return func(text string) (any, error) {
		if text == word {
			return nil, nil
		}
		return parse(text)
	}
}

var (
	textOrNull   = valueType{name: "text", parse: orNull("", someText.parse)}
	urlOrNone    = valueType{name: "URL", parse: orNull("none", someText.parse)}
	objectOrNull = valueType{name: "json", parse: orNull("", jsonObject.parse)}
)

// boolean is true or false.
var boolean = valueType{name: "bool", whenBare: "true", choices: []string{"true", "false"}, parse: func(text string) (any, error) {
	if text != "true" && text != "false" {
		return nil, errors.New("must be true or false")
	}
	return text == "true", nil
}}

// integer is a whole number within bounds.
func integer(least, most int64) valueType {
	return valueType{name: "n", parse: func(text string) (any, error) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("must be a whole number from %d to %d", least, most)
		}
		return n, nil
	}}
}

// limit is a whole number, or "unlimited", which is null for the API.
func limit(least, most int64) valueType {
	number := integer(least, most)
	return valueType{name: "n", choices: []string{"unlimited"}, parse: orNull("unlimited", func(text string) (any, error) {
		n, err := number.parse(text)
		if err != nil {
			return nil, fmt.Errorf("%w, or unlimited", err)
		}
		return n, nil
	})}
}

// words is a list of words, separated by commas or spaces, or in several flags. It may be empty.
var words = valueType{name: "list", repeatable: true, parse: func(text string) (any, error) { return splitWords(text) }}

func splitWords(text string) ([]string, error) {
	list := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	if list == nil {
		list = []string{}
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return nil, errors.New("must not contain a control character")
	}
	return list, nil
}

// oneOf is one of a few words.
func oneOf(choices ...string) valueType {
	return valueType{name: strings.Join(choices, "|"), choices: choices, parse: func(text string) (any, error) {
		if slices.Contains(choices, text) {
			return text, nil
		}
		return nil, fmt.Errorf("must be one of %s", strings.Join(choices, ", "))
	}}
}

// anyOf is one or more of a few words, separated as in words. The API gets them separated by commas.
func anyOf(choices ...string) valueType {
	return valueType{name: "list", repeatable: true, choices: choices, parse: func(text string) (any, error) {
		chosen, err := splitWords(text)
		if err != nil {
			return nil, err
		}
		isUnknown := func(word string) bool { return !slices.Contains(choices, word) }
		if len(chosen) == 0 || slices.ContainsFunc(chosen, isUnknown) {
			return nil, fmt.Errorf("must be one or more of %s, separated by commas", strings.Join(choices, ", "))
		}
		return strings.Join(chosen, ","), nil
	}}
}

// durationUpTo is a duration, which is a number of seconds for the API.
func durationUpTo(most time.Duration) valueType { return durationBetween(0, most) }

// durationBetween is a duration, which is a number of seconds for the API.
func durationBetween(least, most time.Duration) valueType {
	return valueType{name: "duration", parse: func(text string) (any, error) {
		d, err := config.ParseDuration(text)
		if err == nil && (d < least || d > most || d%time.Second != 0) {
			err = fmt.Errorf("must be whole seconds from %s to %gh", cmp.Or(strings.TrimSuffix(least.String(), "0s"), "0s"), most.Hours())
		}
		return int64(d / time.Second), err
	}}
}

// period is a duration, which stays one for the API.
var period = valueType{name: "duration", parse: func(text string) (any, error) {
	d, err := parsePositive(text)
	return d.String(), err
}}

func parsePositive(text string) (time.Duration, error) {
	d, err := config.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("must be more than 0s")
	}
	return d, err
}

// fromNow is a duration, which is the time after that duration for the API.
var fromNow = valueType{name: "duration", parse: func(text string) (any, error) {
	d, err := parsePositive(text)
	return apiTime(time.Now().Add(d)), err
}}

// timestamp is a time.
var timestamp = valueType{name: "time", parse: func(text string) (any, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		for _, layout := range []string{time.DateOnly, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02T15:04:05"} {
			if at, err := time.Parse(layout, text); err == nil {
				return nil, fmt.Errorf("must have the form of %s, which is this time in UTC", at.Format(time.RFC3339))
			}
		}
		return nil, errors.New("must be a time such as 2030-01-31T12:00:00Z")
	}
	if year := at.UTC().Year(); year < 1 || year > 9999 {
		return nil, errors.New("must be a time before the year 10000")
	}
	return apiTime(at), nil
}}

// timeOrAgo is a time, or how long ago that time was.
var timeOrAgo = valueType{name: "time|duration", parse: func(text string) (any, error) {
	if d, err := config.ParseDuration(text); err == nil && d >= 0 {
		return apiTime(time.Now().Add(-d)), nil
	}
	at, err := timestamp.parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w, or a duration before now such as 24h or 7d", err)
	}
	return at, nil
}}

func apiTime(at time.Time) string { return at.UTC().Format(webhook.TimeFormat) }

// jsonObject is a JSON object.
var jsonObject = valueType{name: "json", fromStdin: true, parse: func(text string) (any, error) {
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return nil, errors.New("must be a JSON object such as '{\"number\": 1001}'")
	}
	return anyJSON.parse(text)
}}

// anyJSON is a JSON value.
var anyJSON = valueType{name: "json", fromStdin: true, parse: func(text string) (any, error) {
	if problem := form.JSONProblem([]byte(text)); problem != "" {
		return nil, errors.New("must be valid JSON: " + problem)
	}
	return json.RawMessage(text), nil
}}

// readFile parses the content of a file, or of the standard input for "-". The value may be a secret, and ps shows flags.
func (v valueType) readFile(cmd *cobra.Command, path string) (any, error) {
	text, err := output.ReadFile(cmd.InOrStdin(), path, output.MaxFlagFile)
	if err != nil {
		return nil, err
	}
	return v.parse(text)
}

// importedSecret is a signing secret in a file.
var importedSecret = valueType{name: "file", inFile: true, parse: func(text string) (any, error) { return output.ParseSecret(text) }}

// conditions are the conditions of a filter, one in each flag: "PATH OP VALUE". A value that is no JSON is text.
var conditions = valueType{name: "condition", repeatable: true, separator: "\n", parse: func(text string) (any, error) {
	all := []any{}
	for line := range strings.SplitSeq(text, "\n") {
		part := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(part) == 1 && part[0] == "" {
			continue
		}
		if len(part) < 3 {
			return nil, fmt.Errorf("must be a path, one of %s, and a value: 'customer.country eq CH'", strings.Join(filter.Ops(), " "))
		}
		value := json.RawMessage(part[2])
		if !json.Valid(value) {
			value, _ = json.Marshal(part[2]) // of a string
		}
		if _, problem := filter.New(part[0], filter.Op(part[1]), value); problem != nil {
			return nil, fmt.Errorf("cannot be used: %s", strings.TrimSuffix(problem.Message, "."))
		}
		all = append(all, map[string]any{"path": part[0], "op": part[1], "value": value})
	}
	return all, nil
}}

// requestHeaders are request headers in a file, one on each line.
var requestHeaders = valueType{name: "file", inFile: true, parse: func(text string) (any, error) { return output.ParseHeaders(text) }}

// complete offers the possible values of the next argument.
func (a action) complete(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) >= len(a.request.arguments) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.request.arguments[len(args)].value.complete(cmd, args, toComplete)
}

// complete offers the possible values: the choices of the type, or the newest items of its list on the server.
func (v valueType) complete(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if v.listPath == "" {
		return v.choices, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := connect(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp // a shell shows no errors here
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second) // after somebody has pressed the tab key
	defer cancel()
	var found client.Page
	if body, err := c.Do(ctx, "GET", v.listPath, nil); err == nil { // without a limit, which not every list takes
		_ = json.Unmarshal(body, &found) // what is no list offers nothing
	}
	var offered []cobra.Completion
	for _, item := range found.Data {
		if o, err := parseObject(item); err == nil {
			offered = append(offered, candidate(o))
		}
	}
	return offered, cobra.ShellCompDirectiveNoFileComp
}

// candidate returns the value for an item, with a description for people.
func candidate(o object) cobra.Completion {
	word := ""
	for _, name := range []string{"id", "key", "name", "type"} {
		if word = o.text(name); word != absent {
			break
		}
	}
	for _, name := range []string{"email", "name", "url", "description", "type"} {
		if about := o.text(name); about != absent && about != word {
			return cobra.CompletionWithDesc(word, about)
		}
	}
	return word
}
