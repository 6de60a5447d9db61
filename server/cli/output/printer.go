// Package output owns how commands talk to their users: tables, JSON, text that is safe on a terminal, questions, and
// the flags that several commands have. It does not know the API or what the commands do.
package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// The flags that choose the form of the output.
const (
	FlagJSON  = "json"
	FlagQuiet = "quiet"
)

// Flags gives cmd, and all commands below it, --json and --quiet.
func Flags(cmd *cobra.Command) {
	cmd.PersistentFlags().Bool(FlagJSON, false, "print the JSON of the API")
	cmd.PersistentFlags().BoolP(FlagQuiet, "q", false, "print only ids. For commands that return a secret, print only the secret")
}

// Printer prints the result of a command to Out, and remarks about the result to Notes.
type Printer struct {
	Out, Notes  io.Writer
	JSON, Quiet bool // what the user asked for with --json and --quiet
}

// New returns the printer for a command. It returns a UsageError where the user gave both --json and --quiet.
func New(cmd *cobra.Command) (Printer, error) {
	p := Printer{Out: cmd.OutOrStdout(), Notes: cmd.ErrOrStderr()}
	p.JSON, _ = cmd.Flags().GetBool(FlagJSON) // false for commands without this flag
	p.Quiet, _ = cmd.Flags().GetBool(FlagQuiet)
	if p.JSON && p.Quiet {
		return p, UsageError{Err: errors.New("--json and --quiet exclude each other; give only one of them")}
	}
	return p, nil
}

// Write prints the result. A result that cannot be printed is an error.
func (p Printer) Write(text string) error {
	if _, err := io.WriteString(p.Out, text); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// WriteBody prints the body of a response. JSON keeps its meaning, with escapes for the characters that a terminal would obey. In any
// other body, such characters are escaped as in EscapeLines.
func (p Printer) WriteBody(body []byte) error {
	text := strings.TrimRight(string(body), "\n")
	if json.Valid(body) {
		return p.Write(EscapeJSON(text, isShown) + "\n")
	}
	return p.Write(EscapeLines(text) + "\n")
}

// Note prints a remark for people, which may contain text from anybody. It prints nothing with --json or --quiet.
func (p Printer) Note(format string, args ...any) {
	if !p.Quiet && !p.JSON {
		fmt.Fprintln(p.Notes, EscapeLines(fmt.Sprintf(format, args...)))
	}
}

// Say prints a sentence as the result of a command that has no other. It prints nothing with --json or --quiet.
func (p Printer) Say(sentence string) error {
	if p.Quiet || p.JSON || sentence == "" {
		return nil
	}
	return p.Write(EscapeLines(sentence) + "\n")
}

// WriteJSON writes v as indented JSON that is safe on a terminal.
func WriteJSON(w io.Writer, v any) error { return writeJSON(w, v, "  ") }

// WriteJSONLine writes v as JSON on one line that is safe on a terminal.
func WriteJSONLine(w io.Writer, v any) error { return writeJSON(w, v, "") }

func writeJSON(w io.Writer, v any, indent string) error {
	var document bytes.Buffer
	encoder := json.NewEncoder(&document)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, EscapeJSON(document.String(), isShown))
	return err
}

// Table aligns cells in columns. It escapes each cell, so cells may contain text from anybody. The zero value has no rows.
type Table struct{ text strings.Builder }

// Add adds a row.
func (t *Table) Add(cells ...string) {
	for i, cell := range cells {
		if i > 0 {
			t.text.WriteByte('\t')
		}
		t.text.WriteString(Escape(cell))
	}
	t.text.WriteByte('\n')
}

// Write writes the table to w.
func (t *Table) Write(w io.Writer) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(columns, t.text.String()); err != nil {
		return err
	}
	return columns.Flush()
}

// String returns the table. Each row ends with a line feed.
func (t *Table) String() string {
	var b strings.Builder
	_ = t.Write(&b) // a builder takes everything
	return b.String()
}
