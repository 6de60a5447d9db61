package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
)

// The flags of a list.
const (
	flagLimit  = "limit"
	flagCursor = "cursor"
	flagAll    = "all"
)

// How many items a list shows where nobody says, and how many the API gives at once.
const (
	defaultItems = 50
	pageItems    = 200
	maxItems     = 1_000_000
)

func pageFlags(cmd *cobra.Command) {
	limit := defaultItems
	bounded(cmd.Flags(), &limit, flagLimit, 1, maxItems, "show so many of the newest")
	cmd.Flags().String(flagCursor, "", "go on where an earlier list ended")
	cmd.Flags().Bool(flagAll, false, "show all there are")
	cmd.MarkFlagsMutuallyExclusive(flagLimit, flagAll)
}

// page is a list of the API: one page of it, or as many as were asked for.
type page struct {
	Data       []json.RawMessage `json:"data"`
	HasMore    bool              `json:"has_more"`
	NextCursor *string           `json:"next_cursor"`
}

// showPages reads a list as far as it was asked for, and shows it.
func (a action) showPages(cmd *cobra.Command, c client, path string, out output.Printer) error {
	items := maxItems
	if all, err := cmd.Flags().GetBool(flagAll); err != nil || !all {
		items, err = strconv.Atoi(cmd.Flags().Lookup(flagLimit).Value.String())
		if err != nil {
			return err
		}
	}
	found, err := c.pages(cmd.Context(), path, text(cmd, flagCursor), items)
	if err != nil {
		return err
	}
	return a.showList(out, found)
}

// pages reads up to so many items of a list.
func (c client) pages(ctx context.Context, path, cursor string, items int) (page, error) {
	list := page{Data: []json.RawMessage{}}
	for {
		u, err := url.Parse(path)
		if err != nil {
			return list, err
		}
		query := u.Query()
		query.Set("limit", strconv.Itoa(min(items-len(list.Data), pageItems)))
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		got, err := c.send(ctx, "GET", u.Path+"?"+query.Encode(), nil)
		if err != nil {
			return list, err
		}
		if !got.ok() {
			return list, c.refused(got)
		}
		next := page{}
		if err := json.Unmarshal(got.body, &next); err != nil {
			return list, fmt.Errorf("the answer is no list of Keyhook's: check --%s", flagURL)
		}
		list.Data = append(list.Data, next.Data...)
		list.HasMore, list.NextCursor = next.HasMore, next.NextCursor
		// A page may be empty and have more behind it: the server looks at a part of a long log at a time.
		if !next.HasMore || next.NextCursor == nil || *next.NextCursor == cursor || len(list.Data) >= items {
			return list, nil
		}
		cursor = *next.NextCursor
	}
}
