package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"
)

// The flags that choose how an answer is shown.
const (
	flagJSON  = "json"
	flagQuiet = "quiet"
)

func outputFlags(cmd *cobra.Command) {
	cmd.PersistentFlags().Bool(flagJSON, false, "print the API's JSON")
	cmd.PersistentFlags().BoolP(flagQuiet, "q", false, "print ids alone, and of what shows a secret the secret alone")
}

// output shows answers: as tables for people, as JSON for programs, or as the one word that a script wants. What is
// asked for goes to out, what is said about it to notes.
type output struct {
	out, notes  io.Writer
	json, quiet bool
	colour      bool
}

func newOutput(cmd *cobra.Command) (output, error) {
	o := output{out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr(), colour: coloured(cmd.OutOrStdout())}
	o.json, _ = cmd.Flags().GetBool(flagJSON) // false where the command has no such flag
	o.quiet, _ = cmd.Flags().GetBool(flagQuiet)
	if o.json && o.quiet {
		return o, misuse{errors.New("--json and --quiet are two ways to print the same: give one of them")}
	}
	return o, nil
}

// write is for what was asked for: not having written it is a failure.
func (o output) write(text string) error {
	if _, err := io.WriteString(o.out, text); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// note is for what is worth knowing beside.
func (o output) note(format string, args ...any) {
	if !o.quiet && !o.json {
		fmt.Fprintf(o.notes, format+"\n", args...)
	}
}

// say tells what was done where there is nothing to show.
func (o output) say(text string) error {
	if o.quiet || o.json || text == "" {
		return nil
	}
	return o.write(text + "\n")
}

// show shows the answer about one thing.
func (o output) show(a action, body []byte) error {
	if o.json {
		return o.write(string(bytes.TrimRight(body, "\n")) + "\n")
	}
	r, err := parseObject(body)
	if err != nil {
		return err
	}
	if o.quiet {
		return o.write(r.text(or(a.secret, or(a.id, "id"))) + "\n")
	}
	member, columns, _ := strings.Cut(a.table, ": ")
	text := o.details(r, member)
	if list := r.items(member); len(list) > 0 {
		rows, err := cells(list, strings.Fields(columns))
		if err != nil {
			return err
		}
		text += "\n" + o.table(strings.Fields(columns), rows, math.MaxInt)
	}
	if err := o.write(text); err != nil {
		return err
	}
	if a.secret != "" {
		o.note("\nKeep the %s now: it is not shown again.", a.secret)
	}
	return nil
}

// showList shows a list.
func (o output) showList(a action, found page) error {
	if o.json {
		text, err := found.json()
		if err != nil {
			return err
		}
		return o.write(string(text))
	}
	columns := strings.Fields(a.list)
	if o.quiet {
		columns = []string{or(a.id, "id")}
	}
	rows, err := cells(found.Data, columns)
	switch {
	case err != nil:
		return err
	case o.quiet:
		var b strings.Builder
		for _, row := range rows {
			b.WriteString(row[0] + "\n")
		}
		return o.write(b.String())
	case len(rows) == 0:
		o.note("There are none.")
		return nil
	}
	if err := o.write(o.table(columns, rows, widest)); err != nil {
		return err
	}
	if found.HasMore && found.NextCursor != nil {
		o.note("\nThere are more: --all shows them, --cursor %s goes on.", visible(*found.NextCursor))
	}
	return nil
}

// cells reads the columns of each item.
func cells(list []json.RawMessage, columns []string) ([][]string, error) {
	rows := make([][]string, len(list))
	for i, item := range list {
		r, err := parseObject(item)
		if err != nil {
			return nil, err
		}
		for _, name := range columns {
			rows[i] = append(rows[i], r.text(name))
		}
	}
	return rows, nil
}
