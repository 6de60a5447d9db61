package webhook

// Limits of the catalogue of event types.
const (
	MaxExample       = 64 << 10 // bytes of an example, and of a schema
	MaxCatalogue     = 1000     // types
	MaxCatalogueSize = 4 << 20  // bytes of all texts
)

// EventType is an event type: what the catalogue says about it, for all organizations, and when one organization published it.
type EventType struct {
	Type        string `db:"type"`
	Description string `db:"description"` // empty: the type is not in the catalogue
	Group       string `db:"event_group"` // empty: none
	Example     []byte `db:"example"`     // the data of an event, a JSON object; nil: none
	Schema      []byte `db:"schema"`      // a JSON object; nil: none
	LastSeenAt  *int64 `db:"last_seen_at"`
}

// EventTypeChange describes an event type in the catalogue. Nil leaves a field as it is, and an empty value removes it.
type EventTypeChange struct {
	Description, Group *string
	Example, Schema    *[]byte
}

// On returns the type after the change.
func (c EventTypeChange) On(t EventType) EventType {
	set(&t.Description, c.Description)
	set(&t.Group, c.Group)
	set(&t.Example, c.Example)
	set(&t.Schema, c.Schema)
	return t
}

func set[T any](field, to *T) {
	if to != nil {
		*field = *to
	}
}
