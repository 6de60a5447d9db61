// Package catalogue owns the catalogue of event types: what the operator says about each type. It does not know events. No event is
// checked against it, so it can refuse none.
package catalogue

import (
	"context"
	"reflect"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Types are the types of the catalogue in memory, as of the last commit. Only the writer uses them.
type Types map[string]struct{}

// Load reads the types of the file.
func (s Types) Load(t *sqlite.Tx) error {
	names, err := sqlite.All[string](t, "SELECT type FROM event_types")
	for _, name := range names {
		s[name] = struct{}{}
	}
	return err
}

// Mark returns the mark of an event of a type.
func (s Types) Mark(eventType string) webhook.Mark {
	if _, known := s[eventType]; known || len(s) == 0 {
		return 0
	}
	return webhook.Uncatalogued
}

// Catalogue is the part of the open database with the catalogue.
type Catalogue struct {
	file  *sqlite.File
	reads *sqlite.Pool
	types Types
	audit Audit
}

// Audit writes an audit event about an event type.
type Audit func(t *sqlite.Tx, by access.Actor, action, eventType string, details map[string]any) error

// New returns the catalogue of an open file. It keeps types up to date.
func New(file *sqlite.File, reads *sqlite.Pool, types Types, audit Audit) *Catalogue {
	return &Catalogue{file, reads, types, audit}
}

// CataloguedType returns what the catalogue says about a type. Faults: NotFound.
func (c *Catalogue) CataloguedType(ctx context.Context, eventType string) (webhook.EventType, error) {
	return find(c.reads.In(ctx), eventType)
}

func find(from sqlite.Reader, eventType string) (webhook.EventType, error) {
	return sqlite.One[webhook.EventType](from, "event type",
		"SELECT type, description, event_group, example, schema FROM event_types WHERE type = ?", eventType)
}

// Example returns the data of a test of a type. Faults: Invalid if the catalogue has no example.
func Example(t *sqlite.Tx, eventType string) ([]byte, error) {
	found, err := find(t, eventType)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return nil, fault.New(fault.Invalid, "unknown_type", "The catalogue has no event type %s; choose one that it has, or leave event_type out.", eventType)
	case err == nil && found.Example == nil:
		return nil, fault.New(fault.Invalid, "no_example",
			"The catalogue has no example of the event type %s; ask an operator to add one, or leave event_type out.", eventType)
	}
	return found.Example, err
}

// PutEventType changes what the catalogue says about a type, and adds the type if the catalogue does not have it. If nothing changes,
// it writes nothing. Faults: Invalid if an addition lacks the description, or if the catalogue would become too large.
func (c *Catalogue) PutEventType(ctx context.Context, by access.Actor, eventType string, change webhook.EventTypeChange) (access.Put[webhook.EventType], error) {
	return sqlite.Returning(ctx, c.file, sqlite.Work{Payer: by.Organization}, func(t *sqlite.Tx) (put access.Put[webhook.EventType], err error) {
		before, err := find(t, eventType)
		action := access.EventTypeUpdated
		if put.Created = fault.KindOf(err) == fault.NotFound; put.Created {
			before.Type, action, err = eventType, access.EventTypeCreated, nil
		}
		put.Is = before
		access.Set(&put.Is.Description, change.Description)
		access.Set(&put.Is.Group, change.Group)
		access.Set(&put.Is.Example, change.Example)
		access.Set(&put.Is.Schema, change.Schema)
		switch {
		case err != nil || reflect.DeepEqual(put.Is, before) && !put.Created:
			return put, err
		case put.Is.Description == "":
			return put, fault.InField("description", "missing", "This is needed to add the type to the catalogue.")
		}
		if err := requireRoom(t, put.Is); err != nil {
			return put, err
		}
		if err := t.Exec(`
			INSERT INTO event_types (type, description, event_group, example, schema, created_at, updated_at)
			VALUES (?1, ?2, ?3, nullif(?4, ''), nullif(?5, ''), ?6, ?6)
			ON CONFLICT (type) DO UPDATE SET description = ?2, event_group = ?3, example = nullif(?4, ''), schema = nullif(?5, ''), updated_at = ?6`,
			eventType, put.Is.Description, put.Is.Group, string(put.Is.Example), string(put.Is.Schema), t.Now()); err != nil {
			return put, err
		}
		t.OnCommit(func() { c.types[eventType] = struct{}{} })
		return put, c.audit(t, by, action, eventType, map[string]any{
			"description": put.Is.Description, "group": put.Is.Group, "example_bytes": len(put.Is.Example), "schema_bytes": len(put.Is.Schema),
		})
	})
}

// requireRoom refuses a type with which the catalogue would be too large.
func requireRoom(t *sqlite.Tx, e webhook.EventType) error {
	size := len(e.Type) + len(e.Description) + len(e.Group) + len(e.Example) + len(e.Schema)
	refusal := fault.New(fault.Invalid, "catalogue_full",
		"The catalogue may have %d event types, and %d bytes of texts in all; delete a type, or shorten an example or a schema.",
		webhook.MaxCatalogue, webhook.MaxCatalogueSize)
	return sqlite.RefuseIf(t, refusal, `
		SELECT count(*) FROM event_types INDEXED BY event_types_by_size WHERE type <> ?
		HAVING count(*) >= ? OR coalesce(sum(size), 0) + ? > ?`, e.Type, webhook.MaxCatalogue, size, webhook.MaxCatalogueSize)
}

// DeleteEventType removes a type from the catalogue. Subscriptions and events of the type stay. Faults: NotFound.
func (c *Catalogue) DeleteEventType(ctx context.Context, by access.Actor, eventType string) error {
	return c.file.Write(ctx, sqlite.Work{Payer: by.Organization}, func(t *sqlite.Tx) error {
		n, err := t.Affected("DELETE FROM event_types WHERE type = ?", eventType)
		switch {
		case err != nil:
			return err
		case n == 0:
			return fault.Missing("event type")
		}
		t.OnCommit(func() { delete(c.types, eventType) })
		return c.audit(t, by, access.EventTypeDeleted, eventType, nil)
	})
}
