package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"

	"github.com/keyhook/keyhook/storage/fault"
)

// PageItems is the number of items that the API returns at most in one page.
const PageItems = 200

// Page is a list of the API: one page of it, or several that were read one after another.
type Page struct {
	Data       []json.RawMessage `json:"data"`
	HasMore    bool              `json:"has_more"`
	NextCursor *string           `json:"next_cursor"`
}

// List reads at most items entries of the list at a path, from a cursor on. An empty cursor means the start of the list.
func (c Client) List(ctx context.Context, path, cursor string, items int) (Page, error) {
	list := Page{Data: []json.RawMessage{}}
	u, err := url.Parse(path)
	if err != nil {
		return list, err
	}
	for {
		query := u.Query()
		query.Set("limit", strconv.Itoa(min(items-len(list.Data), PageItems)))
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		body, err := c.Do(ctx, "GET", u.EscapedPath()+"?"+query.Encode(), nil)
		if err != nil {
			return list, err
		}
		next := Page{}
		if err := json.Unmarshal(body, &next); err != nil {
			return list, fault.Advise(errors.New("the response is not a list, so it does not come from Keyhook"), "check --%s", FlagURL)
		}
		list.Data = append(list.Data, next.Data...)
		list.HasMore, list.NextCursor = next.HasMore, next.NextCursor
		// An empty page may have more behind it: the server reads one part of a long log for each page.
		if !next.HasMore || next.NextCursor == nil || *next.NextCursor == cursor || len(list.Data) >= items {
			return list, nil
		}
		cursor = *next.NextCursor
	}
}
