package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/keyhook/keyhook/server/cli/output"
)

// The functions below are what listen, verify and bench still call. They go when those commands move.

type palette struct{ output.Palette }

func newPalette(w io.Writer) palette { return palette{output.NewPalette(w)} }

func (p palette) good(text string) string   { return p.Paint(output.Green, text) }
func (p palette) bad(text string) string    { return p.Paint(output.Red, text) }
func (p palette) strong(text string) string { return p.Paint(output.Bold, text) }
func (p palette) faint(text string) string  { return p.Paint(output.Faint, text) }

func escaped(text string) string             { return output.EscapeLines(text) }
func shortened(text string, most int) string { return output.Shorten(text, most) }
func isTerminal(w io.Writer) bool            { return output.IsTerminal(w) }

func escapedJSON(text string) string {
	var b strings.Builder
	_ = output.WriteJSONLine(&b, json.RawMessage(text)) // it was JSON
	return b.String()
}

// transport connects to a program on this machine.
var transport = &http.Transport{MaxIdleConnsPerHost: 8}
