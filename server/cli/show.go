package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/explain"
	"github.com/keyhook/keyhook/storage/webhook"
)

// view prints the response to an action.
type view interface {
	print(c *call, path string, body []byte) error
}

// done is the view of an empty response: a sentence, in which each %s is an argument.
type done string

func (d done) print(c *call, path string, body []byte) error {
	if _, err := c.client.Do(c.cmd.Context(), c.method, path, body); err != nil {
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
	quiet     string    // the member that --quiet prints; empty means that of the noun
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
	response, err := c.client.Do(c.cmd.Context(), c.method, path, body)
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
		err = c.out.Write(o.text(cmp.Or(t.secret, t.quiet, c.id, "id")) + "\n")
	default:
		err = t.write(c, o)
	}
	return cmp.Or(err, t.condition.check(o))
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
	rows, err := o.objects(t.table)
	if err != nil {
		return err
	}
	var members output.Table
	for _, m := range o.flat(t.flat) {
		if m.name != t.table {
			members.Add(m.name, m.text())
		}
	}
	text := members.String()
	if len(rows) > 0 {
		text += "\n" + table(t.columns, rows, math.MaxInt)
	}
	if err := c.out.Write(text); err != nil {
		return err
	}
	if t.secret != "" {
		c.out.Note("\nStore the %s now. It is not shown again.", t.secret)
	}
	return nil
}

// list is the view of a list: a table with a row for each item.
type list struct {
	quiet   string // the member that --quiet prints; empty means that of the noun
	columns []string
	detail  string // the member of each item with a sentence that stands below the table; empty for none
	command string // the member with a command below the sentence; null for none
	fold    string // items with this verdict are only counted
	ofAll   bool   // the list takes --organization all
	hasCSV  bool   // the list takes --csv
	whole   bool   // the response has the whole list, so there are no pages
}

func (l list) print(c *call, path string, _ []byte) error {
	if asCSV, _ := c.cmd.Flags().GetBool(flagCSV); asCSV { // an error says that the list has no such flag
		return c.client.Lines(c.cmd.Context(), path, "text/csv", func(line string) error { return c.out.Write(output.Escape(line) + "\n") })
	}
	found, err := l.read(c, path)
	if err != nil {
		return err
	}
	if c.out.JSON {
		return output.WriteJSONLine(c.out.Out, found)
	}
	items, err := parseObjects(found.Data)
	switch {
	case err != nil:
		return err
	case len(items) == 0 && found.Notice == string(webhook.NoSubscription):
		c.out.Note("Nobody receives the event, because the organization has no subscription. Create one with: keyhook subscriptions create")
		return nil
	case len(items) == 0:
		note := "The list is empty."
		if l.ofAll && c.organization == "" {
			note += " It shows one organization only. Operators see all organizations with --" + client.FlagOrganization + " " + all + "."
		}
		c.out.Note("%s", note)
		return nil
	}
	shown := items
	if l.fold != "" && len(items) > 1 && !c.out.Quiet {
		shown = slices.DeleteFunc(slices.Clone(items), func(o object) bool { return o.text("verdict") == l.fold })
	}
	if err := c.out.Write(l.text(c, shown)); err != nil {
		return err
	}
	if folded := len(items) - len(shown); folded > 0 {
		c.out.Note("\n%s: %s. To see why, name a subscription, or use --json.", l.fold, output.Count(folded, "subscription", "subscriptions"))
	}
	if found.HasMore && found.NextCursor != nil {
		c.out.Note("\nThere are more items. Show all of them with --all, or the next page with --cursor %s.", output.Escape(*found.NextCursor))
	}
	return nil
}

// read reads as much of the list as the user asked for.
func (l list) read(c *call, path string) (found client.Page, err error) {
	if l.whole {
		body, err := c.client.Do(c.cmd.Context(), c.method, path, nil)
		if err == nil {
			err = json.Unmarshal(body, &found)
		}
		return found, err
	}
	items := maxItems
	if all, _ := c.cmd.Flags().GetBool(flagAll); !all {
		items, _ = strconv.Atoi(c.cmd.Flags().Lookup(flagLimit).Value.String()) // it has parsed its number
	}
	return c.client.List(c.cmd.Context(), path, c.cmd.Flags().Lookup(flagCursor).Value.String(), items)
}

// text returns the table, and below it the details: for each item, the first column, the sentence, and the command.
func (l list) text(c *call, items []object) string {
	var b strings.Builder
	if c.out.Quiet {
		for _, o := range items {
			b.WriteString(o.text(cmp.Or(l.quiet, c.id, "id")) + "\n")
		}
		return b.String()
	}
	columns := l.columns
	if c.asksForAll() {
		columns = append(slices.Clip(columns), "organization_id")
	}
	b.WriteString(table(columns, items, 60))
	if l.detail == "" {
		return b.String()
	}
	for _, o := range items {
		b.WriteString("\n" + o.text(columns[0]) + ": " + o.text(l.detail) + "\n")
		if hint := explain.Hint(o.text("hint")).Sentence(); hint != "" {
			b.WriteString("    " + hint + "\n")
		}
		if command := o.text(l.command); command != absent {
			b.WriteString("    " + command + "\n")
		}
	}
	return b.String()
}

// table returns rows below the names of their columns. Cells are shortened to widest characters.
func table(columns []string, rows []object, widest int) string {
	var t output.Table
	var heads []string
	for _, name := range columns {
		heads = append(heads, strings.ToUpper(strings.NewReplacer("_", " ", ".", " ").Replace(name)))
	}
	t.Add(heads...)
	for _, o := range rows {
		var cells []string
		for _, name := range columns {
			cells = append(cells, output.Shorten(o.text(name), widest))
		}
		t.Add(cells...)
	}
	return t.String()
}

// The flags of a list.
const (
	flagLimit  = "limit"
	flagCursor = "cursor"
	flagAll    = "all"
	flagCSV    = "csv"
)

// The number of items in a list: without --limit, and at most.
const (
	defaultItems = 50
	maxItems     = 1_000_000
)

// listFlags gives cmd the flags of a list.
func listFlags(cmd *cobra.Command, hasCSV bool) {
	limit := defaultItems
	output.IntFlag(cmd.Flags(), &limit, flagLimit, 1, maxItems, "number of newest items to show")
	cmd.Flags().String(flagCursor, "", "cursor that the previous list printed")
	cmd.Flags().Bool(flagAll, false, "show all items")
	output.Exclusive(cmd, flagLimit, flagAll)
	if hasCSV {
		cmd.Flags().Bool(flagCSV, false, "print all items as CSV, for a spreadsheet")
		for _, other := range []string{flagLimit, flagCursor, flagAll} {
			output.Exclusive(cmd, flagCSV, other)
		}
	}
}
