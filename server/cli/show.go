package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

// maxCellWidth is the number of characters that a cell of a list may have.
const maxCellWidth = 60

// view prints the response to an action.
type view interface {
	print(c *call, path string, body []byte) error
}

func (c *call) view() view {
	if c.show == nil {
		return thing{}
	}
	return c.show
}

// done is the view of an empty response: a sentence, in which each %s is an argument.
type done string

func (d done) print(c *call, path string, body []byte) error {
	if _, err := c.client.Do(c.cmd.Context(), c.request.method, path, body); err != nil {
		return err
	}
	sentence := string(d)
	for _, argument := range c.args {
		sentence = strings.Replace(sentence, "%s", output.Escape(argument), 1)
	}
	return c.out.Say(sentence)
}

// thing is the view of a response about one thing: a line for each member.
type thing struct {
	quiet     string    // the member that --quiet prints; empty means "id"
	secret    string    // the member with a secret, which is shown only once
	flat      []string  // these members are objects; each of their members gets a line
	table     string    // this member is a list, which is printed as a table
	columns   []string  // of table
	condition condition // the command fails after printing, unless the response meets it
}

// condition is what a response must have for the exit code 0. The zero value is no condition.
type condition struct {
	member, value string
	failure       string // the error without it
}

func (t thing) print(c *call, path string, body []byte) error {
	response, err := c.client.Do(c.cmd.Context(), c.request.method, path, body)
	if err != nil {
		return err
	}
	if c.out.JSON {
		if err := c.out.WriteBody(response); err != nil || t.condition.member == "" {
			return err // the body may have any form
		}
	}
	o, err := parseObject(response)
	switch {
	case err != nil || c.out.JSON:
	case c.out.Quiet:
		err = c.out.Write(o.text(cmp.Or(t.secret, t.quiet, "id")) + "\n")
	default:
		err = t.write(c, o)
	}
	if err != nil {
		return err
	}
	return t.condition.check(o)
}

// check returns an error unless a response meets the condition.
func (wanted condition) check(o object) error {
	if wanted.member == "" || o.text(wanted.member) == wanted.value {
		return nil
	}
	reason := o.text("code")
	if reason == absent {
		reason = o.text("error")
	}
	return fmt.Errorf("%s: %s", wanted.failure, reason)
}

func (t thing) write(c *call, o object) error {
	text := details(c.out.Palette, o.flat(t.flat), t.table)
	if list := o.objects(t.table); len(list) > 0 {
		rows, err := cells(list, t.columns)
		if err != nil {
			return err
		}
		text += "\n" + table(c.out.Palette, t.columns, rows, 0)
	}
	if err := c.out.Write(text); err != nil {
		return err
	}
	if note := c.noteOn(o); note != "" {
		c.out.Note("\n%s", note)
	}
	if t.secret != "" {
		c.out.Note("\nStore the %s now. It is not shown again.", t.secret)
	}
	return nil
}

// noteOn returns the remark about a response, or about an item of a list.
func (c *call) noteOn(o object) string {
	if c.note == nil {
		return ""
	}
	return c.note(c, o)
}

// maxNotes is how many items of a list get a remark.
const maxNotes = 5

// list is the view of a list: a table with a row for each item.
type list struct {
	quiet   string // the member that --quiet prints; empty means "id"
	columns []string
	detail  string // the member of each item with a sentence that stands below the table; empty for none
	command string // the member with a command below the sentence; null for none
	ofAll   bool   // the list takes --organization all
}

func (l list) print(c *call, path string, _ []byte) error {
	found, err := readPages(c.cmd, c.client, path)
	switch {
	case err != nil:
		return err
	case c.out.JSON:
		return output.WriteJSONLine(c.out.Out, found)
	case c.out.Quiet:
		return l.writeQuiet(c, found.Data)
	case len(found.Data) == 0 && l.ofAll && c.organization == "":
		c.out.Note("The list is empty. It shows one organization only. Operators see all organizations with --%s %s.", client.FlagOrganization, all)
		return nil
	case len(found.Data) == 0:
		c.out.Note("The list is empty.")
		return nil
	}
	if err := l.write(c, found.Data); err != nil {
		return err
	}
	if found.HasMore && found.NextCursor != nil {
		c.out.Note("\nThere are more items. Show all of them with --all, or the next page with --cursor %s.", output.Escape(*found.NextCursor))
	}
	return nil
}

func (l list) writeQuiet(c *call, items []json.RawMessage) error {
	rows, err := cells(items, []string{cmp.Or(l.quiet, "id")})
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, row := range rows {
		b.WriteString(row[0] + "\n")
	}
	return c.out.Write(b.String())
}

// write prints the items, and the remarks about the first of them that need one.
func (l list) write(c *call, items []json.RawMessage) error {
	columns := l.columns
	if c.asksForAll() {
		columns = append(slices.Clip(columns), "organization_id")
	}
	rows, err := cells(items, columns)
	if err != nil {
		return err
	}
	details, err := l.details(items)
	if err != nil {
		return err
	}
	if err := c.out.Write(table(c.out.Palette, columns, rows, maxCellWidth) + details); err != nil {
		return err
	}
	noted := 0
	for _, item := range items {
		o, err := parseObject(item)
		if err != nil {
			return err
		}
		note := c.noteOn(o)
		switch {
		case note == "":
			continue
		case noted == 0:
			c.out.Note("")
		case noted == maxNotes:
			c.out.Note("Other items need the same.")
			return nil
		}
		noted++
		c.out.Note("%s", note)
	}
	return nil
}

// details returns the lines below the table: for each item, the first column, the sentence, and the command.
func (l list) details(items []json.RawMessage) (string, error) {
	if l.detail == "" {
		return "", nil
	}
	rows, err := cells(items, []string{l.columns[0], l.detail, l.command})
	var b strings.Builder
	for _, row := range rows {
		b.WriteString("\n" + row[0] + ": " + row[1] + "\n")
		if row[2] != absent {
			b.WriteString("    " + row[2] + "\n")
		}
	}
	return b.String(), err
}

// cells reads the columns of each item.
func cells(list []json.RawMessage, columns []string) ([][]string, error) {
	rows := make([][]string, len(list))
	for i, item := range list {
		o, err := parseObject(item)
		if err != nil {
			return nil, err
		}
		for _, name := range columns {
			rows[i] = append(rows[i], o.text(name))
		}
	}
	return rows, nil
}

// isState reports whether the values of a member are states, which have colours.
func isState(name string) bool {
	return name == "status" || name == "outcome" || name == "state" || name == "verdict"
}

// table returns rows below the names of their columns. A widest of 0 shortens no cell.
func table(p output.Palette, columns []string, rows [][]string, widest int) string {
	t := output.Table{Widest: widest, Palette: p, Style: func(row []string, i int) output.Style {
		if isState(columns[i]) {
			return output.StateStyle(row[i])
		}
		return output.Plain
	}}
	for _, name := range columns {
		t.Heads = append(t.Heads, strings.ToUpper(strings.NewReplacer("_", " ", ".", " ").Replace(name)))
	}
	for _, row := range rows {
		t.Add(row...)
	}
	return t.String()
}

// details returns the members of one thing, a line for each, without the member that is a table of its own.
func details(p output.Palette, o object, except string) string {
	t := output.Table{Palette: p, Style: func(row []string, i int) output.Style {
		if i == 1 && isState(row[0]) {
			return output.StateStyle(row[1])
		}
		return output.Plain
	}}
	for _, m := range o {
		if m.name != except {
			t.Add(m.name, m.text())
		}
	}
	return t.String()
}

// The flags of a list.
const (
	flagLimit  = "limit"
	flagCursor = "cursor"
	flagAll    = "all"
)

// The number of items in a list: without --limit, and at most.
const (
	defaultItems = 50
	maxItems     = 1_000_000
)

// listFlags gives cmd the flags of a list.
func listFlags(cmd *cobra.Command) {
	limit := defaultItems
	output.IntFlag(cmd.Flags(), &limit, flagLimit, 1, maxItems, "number of newest items to show")
	cmd.Flags().String(flagCursor, "", "cursor that the previous list printed")
	cmd.Flags().Bool(flagAll, false, "show all items")
	cmd.MarkFlagsMutuallyExclusive(flagLimit, flagAll)
}

// readPages reads as much of a list as the user asked for.
func readPages(cmd *cobra.Command, c client.Client, path string) (client.Page, error) {
	items := maxItems
	if all, err := cmd.Flags().GetBool(flagAll); err != nil || !all {
		items, err = strconv.Atoi(cmd.Flags().Lookup(flagLimit).Value.String())
		if err != nil {
			return client.Page{}, err
		}
	}
	return c.List(cmd.Context(), path, cmd.Flags().Lookup(flagCursor).Value.String(), items)
}
