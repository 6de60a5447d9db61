package webhooks

import (
	"context"
	"encoding/json"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// eventTypeStore is the part of the store that the endpoints of event types use.
type eventTypeStore interface {
	// EventTypes lists the types of the newest events of an organization, and the types of the catalogue; only this one if it is not
	// empty.
	EventTypes(ctx context.Context, organization int64, only string, withoutAudit bool) ([]webhook.EventType, error)
	CataloguedType(ctx context.Context, eventType string) (webhook.EventType, error)
	PutEventType(ctx context.Context, actor access.Actor, eventType string, c webhook.EventTypeChange) (access.Put[webhook.EventType], error)
	DeleteEventType(ctx context.Context, actor access.Actor, eventType string) error
}

// EventTypes are the endpoints of event types: the catalogue of the instance, and what the organization of the caller has published.
type EventTypes struct{ store eventTypeStore }

type eventTypesBody struct {
	Data []eventTypeBody `json:"data"`
}

type eventTypeBody struct {
	Type        string          `json:"type"`
	Description *string         `json:"description"` // null: the type is not in the catalogue
	Group       *string         `json:"group"`
	Example     json.RawMessage `json:"example"`
	Schema      json.RawMessage `json:"schema"`
	LastSeenAt  *exchange.Time  `json:"last_seen_at"`
}

func newEventTypeBody(t webhook.EventType) eventTypeBody {
	return eventTypeBody{t.Type, exchange.NullIfEmpty(t.Description), exchange.NullIfEmpty(t.Group), t.Example, t.Schema, (*exchange.Time)(t.LastSeenAt)}
}

func (h EventTypes) list(x *exchange.Exchange, only string) ([]webhook.EventType, error) {
	return h.store.EventTypes(x.Request.Context(), x.Organization(), only, !x.Principal.Can(access.AuditRead))
}

// List responds with all types, for somebody who chooses the types of a subscription.
func (h EventTypes) List(x *exchange.Exchange) error {
	found, err := h.list(x, "")
	if err != nil {
		return err
	}
	body := eventTypesBody{make([]eventTypeBody, len(found))}
	for i, t := range found {
		body.Data[i] = newEventTypeBody(t)
	}
	return x.OK(body)
}

// Find returns the type in the path.
func (h EventTypes) Find(x *exchange.Exchange) (webhook.EventType, error) {
	found, err := h.list(x, x.Path.Value("type"))
	if err == nil && len(found) == 0 {
		return webhook.EventType{}, fault.Missing("event type")
	}
	if err != nil {
		return webhook.EventType{}, err
	}
	return found[0], nil
}

// Read responds with the type in the path.
func (h EventTypes) Read(x *exchange.Exchange) error {
	return exchange.Reply(x, newEventTypeBody)(h.Find(x))
}

// Put changes what the catalogue says about the type in the path, and adds the type if the catalogue does not have it. A field that
// the body leaves out stays as it is.
func (h EventTypes) Put(x *exchange.Exchange) error {
	f := x.Form()
	name := x.Path.Value("type")
	f.RefuseEventType("type", name)
	change := f.EventTypeChange()
	if err := f.Err(); err != nil {
		return err
	}
	put, err := h.store.PutEventType(x.Request.Context(), x.Actor(), name, change)
	if err != nil {
		return err
	}
	found, err := h.Find(x)
	if err != nil {
		return err
	}
	return x.Put("/api/v1/event-types/"+name+"/", put.Created, newEventTypeBody(found))
}

// FindCatalogued returns the type in the path, if it is in the catalogue.
func (h EventTypes) FindCatalogued(x *exchange.Exchange) (webhook.EventType, error) {
	return h.store.CataloguedType(x.Request.Context(), x.Path.Value("type"))
}

// Remove removes the type in the path from the catalogue.
func (h EventTypes) Remove(x *exchange.Exchange) error {
	return x.Done(h.store.DeleteEventType(x.Request.Context(), x.Actor(), x.Path.Value("type")))
}
