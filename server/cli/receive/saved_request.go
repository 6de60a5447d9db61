package receive

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/fault"
)

// maxSaved bounds a file in bytes. The largest delivery is a fraction of it.
const maxSaved = 16 << 20

// read reads the headers, the body and the time of the check. --header overrides --headers-file, and both override --request.
func (o *verifyOptions) read(in io.Reader) error {
	switch {
	case o.Secret == "":
		return errors.New("there is no secret; give --secret-file, or set " + config.EnvWebhookSecret)
	case o.Tolerance <= 0:
		return errors.New("--tolerance must be more than 0")
	case o.request == "" && o.body == "":
		return errors.New("there is no delivery; give --request, or --body with --header or --headers-file")
	case o.request == "" && o.headersFile == "" && len(o.headers) == 0:
		return errors.New("there are no headers; give --header or --headers-file")
	case o.request == "-" && o.body == "-":
		return errors.New("--request and --body cannot both read the standard input; give a file for one of them")
	}
	o.Header = http.Header{}
	for _, source := range []struct {
		flag, path string
		parse      func(text string) error
	}{
		{"request", o.request, o.parseRequest}, {"headers-file", o.headersFile, o.addHeaders},
		{"body", o.body, func(text string) error { o.Body = []byte(text); return nil }},
	} {
		if source.path == "" {
			continue
		}
		text, err := output.ReadFile(in, source.path, maxSaved)
		if err == nil {
			err = source.parse(text)
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", source.flag, err)
		}
	}
	if err := o.addHeaders(strings.Join(o.headers, "\n")); err != nil {
		return fmt.Errorf("--header: %w", err)
	}
	return o.readClock()
}

// emptyLine ends the headers of a request.
var emptyLine = regexp.MustCompile(`\n\r?\n`)

// parseRequest parses a request as it was on the wire, with either line ending. Everything after the headers is the body, even if
// Content-Length says less: the bytes that were added may be the mistake.
func (o *verifyOptions) parseRequest(text string) error {
	end := emptyLine.FindStringIndex(text)
	if end == nil {
		return fault.Advise(errors.New("the request has no empty line between headers and body"), "save it again with \"keyhook listen --save\"")
	}
	o.Body = []byte(text[end[1]:])
	return o.addHeaders(text[:end[0]])
}

// addHeaders sets the headers of a text, one on each line. The first line may be the request line. A name that is present loses its
// values.
func (o *verifyOptions) addHeaders(text string) error {
	more := http.Header{}
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		line = strings.TrimRight(line, "\r")
		name, value, found := strings.Cut(line, ":")
		switch {
		case strings.TrimSpace(line) == "", strings.HasPrefix(line, ":"), i == 0 && strings.Contains(line, " HTTP/"):
		case !found || name == "" || strings.ContainsAny(name, " \t"):
			return fmt.Errorf("line %d is not a header, such as \"Name: value\": %s", i+1, output.Quote(line))
		default:
			more.Add(name, strings.TrimSpace(value))
		}
	}
	maps.Copy(o.Header, more)
	return nil
}
