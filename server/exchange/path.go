package exchange

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// Path is the route of a request, and the values in its path.
type Path struct {
	Pattern string // of the route, such as /api/v1/plans/{name}/; empty if no route matches
	values  []pathValue
	stored  [2]pathValue // for values, so that they need no memory of their own
}

type pathValue struct{ name, value string }

// Add adds a value. Values are in the order of the path.
func (p *Path) Add(name, value string) {
	if p.values == nil {
		p.values = p.stored[:0]
	}
	p.values = append(p.values, pathValue{name, value})
}

// Value returns a value as it was sent, decoded. It may be empty, "..", NUL or invalid UTF-8. A handler checks it, or passes it only
// to a finder, which finds nothing for such a text.
func (p *Path) Value(name string) string {
	for _, v := range p.values {
		if v.name == name {
			return v.value
		}
	}
	return ""
}

// ID returns a value that must be an id. An id of another form gets the same 404 as an unknown one. noun names the resource as the
// store does, so a response does not tell whether an id is malformed, unknown, or of another organization.
func (p *Path) ID(name string, t access.IDType, noun string) (string, error) {
	id := p.Value(name)
	if !t.Valid(id) {
		return "", fault.Missing(noun)
	}
	return id, nil
}

// ResolveID returns the id of what a text names: the text itself if it has the form of an id of the type, and else the id of what has it as
// external id in the organization of the caller. An id is not looked up here. Every text that may name a subscription or an API key
// is resolved here; the store resolves organizations and users. noun names the resource as the store does. find returns NotFound if nothing
// has the external id.
func (x *Exchange) ResolveID(text string, t access.IDType, noun string,
	find func(ctx context.Context, organization int64, externalID string) (string, error)) (string, error) {
	switch {
	case t.Valid(text):
		return text, nil
	case access.LooksLikeID(text):
		return "", fault.Missing(noun)
	}
	return find(x.Request.Context(), x.Organization(), text)
}
