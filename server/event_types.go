package server

import (
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/storage/access"
)

type eventTypesBody struct {
	Data []eventTypeBody `json:"data"`
}

type eventTypeBody struct {
	Type string `json:"type"`
}

// types responds with the types of the newest events, for somebody who chooses the types of a subscription.
func (h events) types(x *exchange.Exchange) error {
	found, err := h.store.EventTypes(x.Request.Context(), x.Organization(), !x.Principal.Can(access.AuditRead))
	if err != nil {
		return err
	}
	body := eventTypesBody{[]eventTypeBody{}}
	for _, name := range found {
		body.Data = append(body.Data, eventTypeBody{name})
	}
	return x.OK(body)
}
