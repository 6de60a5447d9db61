package cli

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

// maxCellWidth is the number of characters that a cell of a list may have.
const maxCellWidth = 60

// show prints the response to an action about one thing.
func (a action) show(out output.Printer, body []byte) error {
	if out.JSON {
		return out.WriteBody(body)
	}
	o, err := parseObject(body)
	if err != nil {
		return err
	}
	if out.Quiet {
		return out.Write(o.text(cmp.Or(a.secret, a.id, "id")) + "\n")
	}
	member, columns, _ := strings.Cut(a.table, ": ")
	text := details(out.Palette, o.flat(strings.Fields(a.nested)), member)
	if list := o.objects(member); len(list) > 0 {
		rows, err := cells(list, strings.Fields(columns))
		if err != nil {
			return err
		}
		text += "\n" + table(out.Palette, strings.Fields(columns), rows, 0)
	}
	if err := out.Write(text); err != nil {
		return err
	}
	if note := a.noteOn(o); note != "" {
		out.Note("\n%s", note)
	}
	if a.secret != "" {
		out.Note("\nStore the %s now. It is not shown again.", a.secret)
	}
	return nil
}

// noteOn returns the remark about a response, or about an item of a list. An action with a preview has a remark about that.
func (a action) noteOn(o object) string {
	if a.note == nil || a.preview != "" && a.summary == nil {
		return ""
	}
	organization := a.organization
	if organization == all {
		organization = o.text("organization_id")
	}
	return a.note(o, nil, organization)
}

// maxNotes is how many items of a list get a remark.
const maxNotes = 5

// noteItems prints the remarks about the first items of a list that need one.
func (a action) noteItems(out output.Printer, list []json.RawMessage) error {
	noted := 0
	for _, item := range list {
		o, err := parseObject(item)
		if err != nil {
			return err
		}
		note := a.noteOn(o)
		switch {
		case note == "":
			continue
		case noted == 0:
			out.Note("")
		case noted == maxNotes:
			out.Note("Other items need the same.")
			return nil
		}
		noted++
		out.Note("%s", note)
	}
	return nil
}

// showList prints a list.
func (a action) showList(out output.Printer, found client.Page) error {
	if out.JSON {
		return output.WriteJSONLine(out.Out, found)
	}
	columns := strings.Fields(a.columns)
	if out.Quiet {
		columns = []string{cmp.Or(a.id, "id")}
	}
	rows, err := cells(found.Data, columns)
	switch {
	case err != nil:
		return err
	case out.Quiet:
		var b strings.Builder
		for _, row := range rows {
			b.WriteString(row[0] + "\n")
		}
		return out.Write(b.String())
	case len(rows) == 0:
		out.Note("The list is empty.%s", a.otherOrganizations())
		return nil
	}
	notes, err := a.notesOf(found.Data)
	if err != nil {
		return err
	}
	if err := out.Write(table(out.Palette, columns, rows, maxCellWidth) + notes); err != nil {
		return err
	}
	if err := a.noteItems(out, found.Data); err != nil {
		return err
	}
	if found.HasMore && found.NextCursor != nil {
		out.Note("\nThere are more items. Show all of them with --all, or the next page with --cursor %s.", output.Escape(*found.NextCursor))
	}
	return nil
}

// otherOrganizations says that an empty list may have items in other organizations, unless the command names an organization.
func (a action) otherOrganizations() string {
	if !a.listsAll || a.organization != "" {
		return ""
	}
	return " It shows one organization only. Operators see all organizations with --" + client.FlagOrganization + " " + all + "."
}

// notesOf returns the notes of a list: for each item, the first column with a text, and below it a command, if there is one.
func (a action) notesOf(list []json.RawMessage) (string, error) {
	text, command, _ := strings.Cut(a.notes, " ")
	if text == "" {
		return "", nil
	}
	first, _, _ := strings.Cut(a.columns, " ")
	rows, err := cells(list, []string{first, text, command})
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

// showPages reads as much of a list as the user asked for, and shows it.
func (a action) showPages(cmd *cobra.Command, c client.Client, path string, out output.Printer) error {
	items := maxItems
	if all, err := cmd.Flags().GetBool(flagAll); err != nil || !all {
		items, err = strconv.Atoi(cmd.Flags().Lookup(flagLimit).Value.String())
		if err != nil {
			return err
		}
	}
	found, err := c.List(cmd.Context(), path, cmd.Flags().Lookup(flagCursor).Value.String(), items)
	if err != nil {
		return err
	}
	return a.showList(out, found)
}
