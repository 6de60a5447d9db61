package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
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
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/webhook"
)

// valueType is a type of value on the command line. It makes the value for the API. The server checks it.
type valueType struct {
	name       string                         // in the help
	parse      func(text string) (any, error) // returns the JSON value for the API; an error says what the value must be
	whenBare   string                         // the value of a flag that is given without a value
	repeatable bool                           // a second flag adds to the first, after the separator
	separator  string                         // empty is a comma
	choices    []string                       // for shell completion
	fromStdin  bool                           // "-" reads the value from the standard input
	inFile     bool                           // of a flag: the text names a file with the value; "-" is the standard input
}

// wrong returns the error for a value that parse refused. Values that may come from the standard input may be secret or long, so
// the error does not show them.
func (v valueType) wrong(name, text string, err error) error {
	if v.fromStdin {
		return fmt.Errorf("%s %w; for a file, write - and then <FILE", name, err)
	}
	return wrongValue(name, text, err)
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
	textOrNull = valueType{name: "text", parse: orNull("", someText.parse)}
	urlOrNone  = valueType{name: "URL", parse: orNull("none", someText.parse)}
	jsonOrNull = valueType{name: "json", parse: orNull("", anyJSON.parse)}
)

var boolean = valueType{name: "bool", whenBare: "true", choices: []string{"true", "false"}, parse: func(text string) (any, error) {
	if text != "true" && text != "false" {
		return nil, errors.New("must be true or false")
	}
	return text == "true", nil
}}

// limit is a whole number, or "unlimited", which is null for the API.
var limit = valueType{name: "n", choices: []string{"unlimited"}, parse: orNull("unlimited", func(text string) (any, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, errors.New("must be a whole number, or unlimited")
	}
	return n, nil
})}

// words is a list of words, separated by commas or spaces, or in several flags. It may be empty.
var words = valueType{name: "list", repeatable: true, parse: func(text string) (any, error) { return splitWords(text) }}

// someWords is words, but not empty. An empty value is mostly a variable that is not set.
var someWords = valueType{name: words.name, repeatable: true, parse: func(text string) (any, error) {
	list, err := splitWords(text)
	if err == nil && len(list) == 0 {
		err = errors.New("must have at least one item; leave the flag out for the default")
	}
	return list, err
}}

func splitWords(text string) ([]string, error) {
	_, err := anyText.parse(text)
	return append([]string{}, strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })...), err // a list in JSON
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

// joined is a list as in words. The API takes it as one string.
func joined(name, separator string, choices ...string) valueType {
	return valueType{name: name, repeatable: true, choices: choices, parse: func(text string) (any, error) {
		list, err := splitWords(text)
		return strings.Join(list, separator), err
	}}
}

// seconds is a duration, which is a number of seconds for the API.
var seconds = valueType{name: "duration", parse: func(text string) (any, error) {
	d, err := config.ParseDuration(text)
	if err == nil && d%time.Second != 0 {
		err = errors.New("must be whole seconds")
	}
	return int64(d / time.Second), err
}}

// period is a duration, which stays one for the API.
var period = valueType{name: "duration", parse: func(text string) (any, error) {
	d, err := config.ParseDuration(text)
	return d.String(), err
}}

// fromNow is a duration, which is the time after that duration for the API.
var fromNow = valueType{name: "duration", parse: func(text string) (any, error) {
	d, err := config.ParseDuration(text)
	return apiTime(time.Now().Add(d)), err
}}

var timestamp = valueType{name: "time", parse: func(text string) (any, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, errors.New("must be a time such as 2030-01-31T12:00:00Z")
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

var anyJSON = valueType{name: "json", fromStdin: true, parse: func(text string) (any, error) {
	if !json.Valid([]byte(text)) {
		return nil, errors.New("must be valid JSON, such as '{\"number\": 1001}'")
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
		all = append(all, map[string]any{"path": part[0], "op": part[1], "value": value})
	}
	return all, nil
}}

// someConditions is conditions, but not empty.
var someConditions = valueType{name: conditions.name, repeatable: true, separator: conditions.separator, parse: func(text string) (any, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("must have a condition; leave the flag out for every event")
	}
	return conditions.parse(text)
}}

// requestHeaders are request headers in a file, one on each line.
var requestHeaders = valueType{name: "file", inFile: true, parse: func(text string) (any, error) { return output.ParseHeaders(text) }}

// complete offers the choices of the next argument.
func (a action) complete(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) >= len(a.arguments) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.arguments[len(args)].value.choices, cobra.ShellCompDirectiveNoFileComp
}

// identifier is an id, an external id or a name. The server knows which of them a request takes. A credential in the wrong place is never
// sent. The help shows name as the type.
func identifier(name string) valueType {
	return valueType{name: name, parse: func(text string) (any, error) {
		switch {
		case output.HideSecrets(text) != text:
			return nil, errors.New("must be an id, not an API key, an access token or a signing secret")
		case !access.LooksLikeID(text) && !access.ValidExternalID(text):
			return nil, fmt.Errorf("must have 1 to %d visible ASCII characters, without spaces", access.MaxExternalID)
		}
		return text, nil
	}}
}

var (
	id             = identifier("id")
	idOrExternalID = identifier("id|external-id")
	named          = identifier("name")
	permission     = identifier("permission")
)

// permissionList is a list of permissions. It may be empty.
var permissionList = valueType{name: "permissions", repeatable: true, parse: words.parse}

// scope is a list of permissions, as one string.
var scope = joined("permissions", " ")

// apiKey is an API key. On the command line, everybody on the machine can see it, so "-" reads it from the standard input.
var apiKey = valueType{name: "key", fromStdin: true, parse: someText.parse}

// apiKeyOrID is an API key, its id or external id, or the prefix that lists show.
var apiKeyOrID = valueType{name: "key|id|prefix", fromStdin: true, parse: someText.parse}

var method = valueType{name: "method", choices: []string{"GET", "POST", "PUT", "PATCH", "DELETE"}, parse: func(text string) (any, error) {
	_, err := named.parse(text)
	return strings.ToUpper(text), err
}}

// apiPath is a path of the API. It may leave out /api/v1/.
var apiPath = valueType{name: "path", parse: func(text string) (any, error) {
	if strings.Contains(text, "://") {
		return nil, errors.New("must be a path, not a URL; give the server with --" + client.FlagURL)
	}
	if _, err := url.Parse(text); err != nil || strings.ContainsFunc(text, unicode.IsSpace) {
		return nil, errors.New("must be a path without spaces; write a space as %20, and a % as %25")
	}
	path := strings.TrimLeft(text, "/")
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "api/v1"), "/")
	first, _, _ = strings.Cut(first, "?")
	if strings.HasPrefix(path, "api/v1/") || path == "api/v1" || pathsOutsideAPI[first] {
		return "/" + path, nil
	}
	return "/api/v1/" + path, nil
}}

// pathsOutsideAPI are the paths of a server that are not below /api/v1/.
var pathsOutsideAPI = map[string]bool{"healthz": true, "readyz": true, "metrics": true, "openapi.yaml": true, "openapi.json": true}

// anyPath is the path of any API if it begins with a slash, and else a path of the API of Keyhook.
var anyPath = valueType{name: "path", parse: func(text string) (any, error) {
	if strings.HasPrefix(text, "/") {
		return text, nil
	}
	return apiPath.parse(text)
}}
