package output

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// MaxFlagFile is the most bytes of a file with the value of a flag: more than ten headers of the longest values.
const MaxFlagFile = 64 << 10

// ReadFile returns the content of a file of at most these bytes, or of in for "-". The content may be a secret. Errors show neither
// the content nor the path, because people sometimes write the secret itself there.
func ReadFile(in io.Reader, path string, most int64) (string, error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return "", fault.Advise(fmt.Errorf("cannot read the file: %w", fault.WithoutPath(err)), "check the path and its permissions")
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, most+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot read the file: %w", fault.WithoutPath(err))
	case int64(len(text)) > most:
		return "", fmt.Errorf("the file must not be larger than %d KiB", most>>10)
	}
	return string(text), nil
}

// ParseSecret returns the signing secret in the text of a file.
func ParseSecret(text string) (string, error) {
	text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	if len(text) < webhook.MinSecret || len(text) > webhook.MaxSecret || !webhook.ValidSecret(text) {
		return "", fmt.Errorf("the file must have %d to %d visible ASCII characters; behind %s, they must be padded base64",
			webhook.MinSecret, webhook.MaxSecret, webhook.SecretPrefix)
	}
	return text, nil
}

// ParseHeaders returns the request headers in the text of a file, one on each line. A name alone keeps the present value: it is nil.
func ParseHeaders(text string) (map[string]any, error) {
	headers := map[string]any{}
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, hasValue := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		_, isTwice := headers[name]
		switch {
		case !webhook.ValidHeaderName(name):
			return nil, fmt.Errorf("line %d of the file must be \"Name: value\"", i+1)
		case isTwice:
			return nil, fmt.Errorf("line %d of the file repeats a name", i+1)
		case hasValue && (value == "" || !webhook.ValidHeaderValue(value)):
			return nil, fmt.Errorf("the value in line %d of the file must have printable ASCII characters", i+1)
		}
		headers[name] = nil
		if hasValue {
			headers[name] = value
		}
	}
	return headers, nil
}
