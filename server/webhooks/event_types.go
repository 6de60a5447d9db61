package webhooks

import (
	"encoding/json"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

type eventTypeBody struct {
	Type        string          `json:"type"`
	Description *string         `json:"description"` // null: the type is not in the catalogue
	Group       *string         `json:"group"`
	Example     json.RawMessage `json:"example"`
	Schema      json.RawMessage `json:"schema"`
	LastSeenAt  *exchange.Time  `json:"last_seen_at"`
}

func newEventTypeBody(t webhook.EventType) eventTypeBody {
	return eventTypeBody{t.Type, access.NullIfEmpty(t.Description), access.NullIfEmpty(t.Group), t.Example, t.Schema, (*exchange.Time)(t.LastSeenAt)}
}

func (h Endpoints) eventTypes(x *exchange.Exchange, only string) ([]webhook.EventType, error) {
	return h.Store.EventTypes(x.Request.Context(), x.Organization(), only, !x.Principal.Can(access.AuditRead))
}

// ListEventTypes responds with all types, for somebody who chooses the types of a subscription: the catalogue of the instance, and what
// the organization of the caller has published.
func (h Endpoints) ListEventTypes(x *exchange.Exchange) error {
	found, err := h.eventTypes(x, "")
	if err != nil {
		return err
	}
	return x.OK(struct {
		Data []eventTypeBody `json:"data"`
	}{exchange.Each(found, newEventTypeBody)})
}

// FindEventType returns the type in the path.
func (h Endpoints) FindEventType(x *exchange.Exchange) (body eventTypeBody, err error) {
	found, err := h.eventTypes(x, x.Path.Value("type"))
	switch {
	case err != nil:
		return body, err
	case len(found) == 0:
		return body, fault.Missing("event type")
	}
	return newEventTypeBody(found[0]), nil
}

// PutEventType changes what the catalogue says about the type in the path, and adds the type if the catalogue does not have it. A field
// that the body leaves out stays as it is.
func (h Endpoints) PutEventType(x *exchange.Exchange) error {
	f := x.Form()
	name := x.Path.Value("type")
	f.RefuseEventType("type", name)
	change := f.EventTypeChange()
	if err := f.Err(); err != nil {
		return err
	}
	put, err := h.Store.PutEventType(x.Request.Context(), x.Actor(), name, change)
	if err != nil {
		return err
	}
	found, err := h.FindEventType(x)
	if err != nil { // the type is stored all the same; its last_seen_at is unknown
		x.Cause, found = err, newEventTypeBody(put.Is)
	}
	return x.Put("/api/v1/event-types/"+name+"/", put.Created, found)
}

// FindCatalogued returns the type in the path, if it is in the catalogue.
func (h Endpoints) FindCatalogued(x *exchange.Exchange) (webhook.EventType, error) {
	return h.Store.CataloguedType(x.Request.Context(), x.Path.Value("type"))
}

// RemoveEventType removes the type in the path from the catalogue.
func (h Endpoints) RemoveEventType(x *exchange.Exchange) error {
	return x.Done(h.Store.DeleteEventType(x.Request.Context(), x.Actor(), x.Path.Value("type")))
}
