package server

import (
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/storage/search"
)

type searchBody struct {
	Data []foundBody `json:"data"`
}

type foundBody struct {
	Type                   string  `json:"type"`
	ID                     string  `json:"id"`
	ParentID               *string `json:"parent_id"`
	Title                  string  `json:"title"`
	Detail                 string  `json:"detail"`
	OrganizationID         *string `json:"organization_id"`
	OrganizationExternalID *string `json:"organization_external_id"`
	OrganizationName       *string `json:"organization_name"`
}

func (h *handlers) search(x *exchange.Exchange) error {
	text, present := x.Query.Value("q")
	if !present {
		x.Query.Refuse("q", "is required: an id, a prefix, an external id, or the beginning of a name")
	}
	if err := x.Query.Err(); err != nil {
		return err
	}
	found, err := h.options.Store.Search(x.Request.Context(), *x.Principal, text)
	if err != nil {
		return err
	}
	return x.OK(searchBody{exchange.Each(found, func(f search.Found) foundBody {
		return foundBody{f.Type.String(), f.ID, f.ParentID, f.Title, f.Detail, f.OrganizationID, f.OrganizationExternalID, f.OrganizationName}
	})})
}
