package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/flag"
	"github.com/keyhook/keyhook/server/cli/output"
)

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
	flag.Int(cmd.Flags(), &limit, flagLimit, 1, maxItems, "number of newest items to show")
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
