// Package apply owns the endpoint that makes plans, permissions, roles, event types, organizations, users, members and subscriptions as
// one document says, all or nothing. It reads their fields and calls the store as the endpoints for one object do, and has no rules of
// its own about them.
package apply

import (
	"context"
	"errors"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/server/platform"
	"github.com/keyhook/keyhook/server/webhooks"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// Limits of a request.
const (
	// MaxChanges is how many changes a request may make. They are one write, so others wait for them.
	MaxChanges = 1000
	maxObjects = 100_000 // in a section
	maxRows    = 10_000  // that a request pays for in advance
)

// Store is everything that the endpoint asks of the store.
type Store interface {
	platform.Store
	webhooks.Store
	// Transact runs fn in one transaction, for all calls with the context that fn gets. If fn fails, nothing was written.
	Transact(ctx context.Context, payer int64, rows int, fn func(context.Context) error) error
	SubscriptionOrganization(ctx context.Context, id string) (organization string, err error)
}

// Endpoint applies documents. All fields are required.
type Endpoint struct {
	Store        Store
	CheckURL     func(raw string) (canonical string, err error) // of egress.Policy
	HeaderPrefix string                                         // of Keyhook's headers in deliveries
}

type change struct {
	Action string  `json:"action"` // create, update or remove
	Kind   string  `json:"kind"`
	Key    string  `json:"key"`  // as the document names the object
	Path   *string `json:"path"` // of the object in the body; null for a removal
	Fields []field `json:"fields"`
}

// field is a field that a change sets. Of an organization that a removal would close, it is the name, or a number of what ends with it.
type field struct {
	Name string `json:"name"`
	From any    `json:"from"` // null also if there was none
	To   any    `json:"to"`
}

type resultBody struct {
	Changes   []change `json:"changes"`
	Unchanged int      `json:"unchanged"`
}

// errTakenBack takes back what a dry run has written, or a document with problems. It is no fault, because a write with a fault has not
// begun to change anything.
var errTakenBack = errors.New("a dry run or a refused document writes nothing")

// Apply makes the server as the document in the body says, and responds with the changes. A dry run makes them too, and takes them back.
func (e Endpoint) Apply(x *exchange.Exchange) error {
	f := x.Form()
	f.Require("document")
	dry, prune, document := f.Bool("dry_run"), f.Bool("prune"), f.Nested("document")
	shown := f.Strings("removals", "an array of removals, such as [\"user ada\"]")
	if err := f.Err(); err != nil {
		return err
	}
	r := &run{
		Endpoint: e, by: x.Actor(), dry: form.Or(dry, false), prune: form.Or(prune, false), shown: shown,
		lookup: form.Lookup{Store: e.Store}, sections: map[string][]*form.Form{}, unchanged: map[*form.Form]string{},
	}
	r.by.Applying = true
	for _, k := range r.kinds() {
		r.sections[k.name] = document.List(k.section, maxObjects)
	}
	if err := document.Err(); err != nil {
		return err
	}
	if len(r.sections[access.KindSubscription]) > 0 || r.prune {
		if err := x.Principal.Permit(access.NewScope(access.WebhooksRead, access.WebhooksWrite, access.PlatformActAs)); err != nil {
			return err
		}
	}
	// The body belongs to the request, so the request waits for the writer until the end.
	ctx := context.WithoutCancel(x.Request.Context())
	if err := r.findUnchanged(ctx); err != nil {
		return err
	}
	if r.isDone() {
		return x.OK(resultBody{[]change{}, len(r.unchanged)})
	}
	var result resultBody
	var refusal error
	err := e.Store.Transact(ctx, r.by.Organization, r.rows(), func(ctx context.Context) (err error) {
		result, refusal, err = r.write(ctx)
		if kind := fault.KindOf(err); kind == fault.Limited || kind == fault.Invalid {
			refusal, err = err, nil // after the changes of other objects, so it is no fault of a write either
		}
		if err == nil && (refusal != nil || r.dry) {
			err = errTakenBack
		}
		return err
	})
	switch {
	case refusal != nil:
		return refusal
	case err != nil && !errors.Is(err, errTakenBack):
		return err
	}
	return x.OK(result)
}
