package cli

import (
	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/flag"
)

// readFile parses the content of a file, or of the standard input for "-". The value may be a secret, and ps shows flags.
func (v valueType) readFile(cmd *cobra.Command, path string) (any, error) {
	text, err := flag.ReadFile(cmd.InOrStdin(), path)
	if err != nil {
		return nil, err
	}
	return v.parse(text)
}

// importedSecret is a signing secret in a file.
var importedSecret = valueType{name: "file", inFile: true, parse: func(text string) (any, error) { return flag.Secret(text) }}

// requestHeaders are request headers in a file, one on each line.
var requestHeaders = valueType{name: "file", inFile: true, parse: func(text string) (any, error) { return flag.Headers(text) }}
