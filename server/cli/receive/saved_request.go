package receive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/fault"
)

// maxSaved bounds a file in bytes. The largest delivery is a fraction of it.
const maxSaved = 16 << 20

// checkSources reports a delivery that is incomplete.
func (o *verifyOptions) checkSources() error {
	switch {
	case o.request == "" && o.body == "":
		return errors.New("there is no delivery; give --request, or --body with --header or --headers-file")
	case o.request == "" && o.headersFile == "" && len(o.headers) == 0:
		return errors.New("there are no headers; give --header or --headers-file")
	case o.request == "-" && o.body == "-":
		return errors.New("--request and --body cannot both read the standard input; give a file for one of them")
	}
	return nil
}

// read returns the headers and the body of the delivery. --header overrides --headers-file, and both override --request.
func (o *verifyOptions) read(in io.Reader) (header http.Header, body []byte, err error) {
	header = http.Header{}
	if o.request != "" {
		text, err := readSaved(in, o.request)
		if err == nil {
			header, body, err = parseRequest(text)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("--request: %w", err)
		}
	}
	if o.headersFile != "" {
		text, err := readSaved(in, o.headersFile)
		if err == nil {
			err = addHeaders(header, text)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("--headers-file: %w", err)
		}
	}
	if err := addHeaders(header, []byte(strings.Join(o.headers, "\n"))); err != nil {
		return nil, nil, fmt.Errorf("--header: %w", err)
	}
	if o.body != "" {
		if body, err = readSaved(in, o.body); err != nil {
			return nil, nil, fmt.Errorf("--body: %w", err)
		}
	}
	return header, body, nil
}

// addHeaders sets the headers of a text. A name that is present loses its values.
func addHeaders(header http.Header, text []byte) error {
	more, err := parseHeaders(text)
	maps.Copy(header, more)
	return err
}

// readSaved reads a file, or the standard input.
func readSaved(in io.Reader, name string) ([]byte, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fault.Advise(fmt.Errorf("cannot read the file: %w", err), "check the path and its permissions")
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxSaved+1))
	if err == nil && len(text) > maxSaved {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxSaved)
	}
	return text, err
}

// parseRequest parses a request as it was on the wire, with either line ending. Everything after the headers is the body, even if
// Content-Length says less: the bytes that were added may be the mistake.
func parseRequest(text []byte) (http.Header, []byte, error) {
	end, gap := bytes.Index(text, []byte("\r\n\r\n")), 4
	if other := bytes.Index(text, []byte("\n\n")); end < 0 || other >= 0 && other < end {
		end, gap = other, 2
	}
	if end < 0 {
		return nil, nil, fault.Advise(errors.New("the request has no empty line between headers and body"), "save it again with \"keyhook listen --save\"")
	}
	header, err := parseHeaders(text[:end])
	if err != nil {
		return nil, nil, err
	}
	body := text[end+gap:]
	if strings.EqualFold(header.Get("Transfer-Encoding"), "chunked") {
		if whole, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(body))); err == nil {
			body = whole
		}
	}
	return header, body, nil
}

// parseHeaders parses headers, one on each line or as a JSON object. The first line may be the request line.
func parseHeaders(text []byte) (http.Header, error) {
	if text = bytes.TrimSpace(text); bytes.HasPrefix(text, []byte("{")) {
		return parseJSONHeaders(text)
	}
	header, number := http.Header{}, 0
	for line := range strings.Lines(string(text)) {
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
func parseJSONHeaders(text []byte) (http.Header, error) {
	var object map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
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
