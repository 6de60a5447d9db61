package receive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"strings"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
	"github.com/keyhook/keyhook/storage/fault"
)

// maxSaved bounds a file in bytes. The largest delivery is a fraction of it.
const maxSaved = 16 << 20

// readDelivery reads the headers and the body. --header overrides --headers-file, and both override --request.
func (o *verifyOptions) readDelivery(in io.Reader) error {
	switch {
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
		parse      func(d *diagnosis.Delivery, text string) error
	}{{"request", o.request, parseRequest}, {"headers-file", o.headersFile, addHeaders}, {"body", o.body, setBody}} {
		if source.path == "" {
			continue
		}
		text, err := output.ReadFile(in, source.path, maxSaved)
		if err == nil {
			err = source.parse(&o.Delivery, text)
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", source.flag, err)
		}
	}
	if err := addHeaders(&o.Delivery, strings.Join(o.headers, "\n")); err != nil {
		return fmt.Errorf("--header: %w", err)
	}
	return nil
}

func setBody(d *diagnosis.Delivery, text string) error {
	d.Body = []byte(text)
	return nil
}

// addHeaders sets the headers of a text. A name that is present loses its values.
func addHeaders(d *diagnosis.Delivery, text string) error {
	more, err := parseHeaders(text)
	maps.Copy(d.Header, more)
	return err
}

// parseRequest parses a request as it was on the wire, with either line ending. Everything after the headers is the body, even if
// Content-Length says less: the bytes that were added may be the mistake.
func parseRequest(d *diagnosis.Delivery, text string) error {
	headers, body, found := strings.Cut(text, "\n\n")
	if other, rest, isOther := strings.Cut(text, "\r\n\r\n"); isOther && (!found || len(other) < len(headers)) {
		headers, body, found = other, rest, true
	}
	if !found {
		return fault.Advise(errors.New("the request has no empty line between headers and body"), "save it again with \"keyhook listen --save\"")
	}
	if err := addHeaders(d, headers); err != nil {
		return err
	}
	d.Body = []byte(body)
	if strings.EqualFold(d.Header.Get("Transfer-Encoding"), "chunked") {
		if whole, err := io.ReadAll(httputil.NewChunkedReader(strings.NewReader(body))); err == nil {
			d.Body = whole
		}
	}
	return nil
}

// parseHeaders parses headers, one on each line or as a JSON object. The first line may be the request line.
func parseHeaders(text string) (http.Header, error) {
	if text = strings.TrimSpace(text); strings.HasPrefix(text, "{") {
		return parseJSONHeaders(text)
	}
	header, number := http.Header{}, 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		name, value, found := strings.Cut(line, ":")
		switch {
		case strings.TrimSpace(line) == "", strings.HasPrefix(line, ":"), number == 1 && strings.Contains(line, " HTTP/"):
		case !found || name == "" || strings.ContainsAny(name, " \t"):
			return nil, fmt.Errorf("line %d is not a header, such as \"Name: value\": %s", number, output.Quote(line))
		default:
			header.Add(name, strings.TrimSpace(value))
		}
	}
	return header, nil
}

// parseJSONHeaders parses headers as serverless platforms and logs show them: a text or a list of texts for each name.
func parseJSONHeaders(text string) (http.Header, error) {
	var object map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return nil, fmt.Errorf("the headers begin like a JSON object, but are not valid JSON: %w", err)
	}
	header := http.Header{}
	for name, value := range object {
		list, isList := value.([]any)
		if !isList {
			list = []any{value}
		}
		for _, v := range list {
			header.Add(name, fmt.Sprint(v))
		}
	}
	return header, nil
}
