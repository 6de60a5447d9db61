package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/storage/webhook"
)

// maxValueFile is the most bytes of a file with the value of a flag: more than ten headers of the longest values.
const maxValueFile = 64 << 10

// readFile parses the content of a file, or of the standard input for "-". The value may be a secret, and ps shows flags. Errors
// show neither the value nor the path, because people sometimes write the secret itself there.
func (v valueType) readFile(cmd *cobra.Command, path string) (any, error) {
	in := cmd.InOrStdin()
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read the file: %w", withoutPath(err))
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxValueFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read the file: %w", withoutPath(err))
	case len(text) > maxValueFile:
		return nil, fmt.Errorf("the file must not be larger than %d KiB", maxValueFile>>10)
	}
	return v.parse(string(text))
}

func withoutPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// importedSecret is a signing secret in a file.
var importedSecret = valueType{name: "file", inFile: true, parse: func(text string) (any, error) {
	text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	if len(text) < webhook.MinSecret || len(text) > webhook.MaxSecret || !webhook.ValidSecret(text) {
		return nil, fmt.Errorf("the file must have %d to %d visible ASCII characters; behind %s, they must be padded base64",
			webhook.MinSecret, webhook.MaxSecret, webhook.SecretPrefix)
	}
	return text, nil
}}

// requestHeaders are request headers in a file, one on each line. A name alone keeps the present value.
var requestHeaders = valueType{name: "file", inFile: true, parse: func(text string) (any, error) {
	headers := map[string]any{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, hasValue := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		_, isTwice := headers[name]
		switch {
		case !webhook.ValidHeaderName(name):
			return nil, fmt.Errorf("line %d of the file must be \"Name: value\"", n)
		case isTwice:
			return nil, fmt.Errorf("line %d of the file repeats a name", n)
		case hasValue && (value == "" || !webhook.ValidHeaderValue(value)):
			return nil, fmt.Errorf("the value in line %d of the file must have printable ASCII characters", n)
		}
		headers[name] = nil
		if hasValue {
			headers[name] = value
		}
	}
	return headers, nil
}}
