// Package directory owns the changes of who may do what: organizations, users, members, roles, permissions, plans, API keys, access
// tokens and sessions. It does not know events, subscriptions or how the audit log is kept: Hooks do that. What also ends something in
// other tables is a function of a transaction: the owner of the transaction calls it. The principals of credentials are in package
// principal.
package directory

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// Directory is the part of the open database with users, permissions and credentials. Writes wait until the file runs.
type Directory struct {
	file  *sqlite.File
	reads *sqlite.Pool
	logs  *scan.Reader
	hooks Hooks

	*principal.Reader // of the same file
	lastUses          lastUses
	firstRequest      firstRequest
	bootstrapCreated  bool
	bootstrapRefused  bool
}

// Hooks are what the owner of the other tables does in a transaction of the directory. All are required.
type Hooks struct {
	// Audit writes an audit event. Organization 0 means a change of the whole instance, see Actor.LogOrganization.
	Audit func(t *sqlite.Tx, by access.Actor, organization int64, eventType string, about Target, details map[string]any) error
	// AuditCost returns about how many rows a write with an audit event of this type writes.
	AuditCost func(t *sqlite.Tx, organization int64, eventType string) (int, error)
	// RequireStorage refuses a change if the plan of the organization allows no more bytes today. It counts the given bytes,
	// which the change adds besides its line in the audit log. Faults: Limited.
	RequireStorage func(t *sqlite.Tx, organization int64, bytes int) error
	// PlanChanged is called after an organization got another plan, or a plan other limits. webhooks says that this may have
	// switched webhooks on or off.
	PlanChanged func(t *sqlite.Tx, webhooks bool)
}

// Target is what an audit event is about.
type Target struct{ Type, ID string }

// New returns the directory of an open file. Requests wait for reads; lists that may be long use logs.
func New(file *sqlite.File, reads *sqlite.Pool, logs *scan.Reader, hooks Hooks) *Directory {
	d := &Directory{file: file, reads: reads, logs: logs, hooks: hooks, firstRequest: newFirstRequest()}
	d.Reader = principal.New(reads, d.bindSubject)
	return d
}

// get reads one row into dest. It returns sql.ErrNoRows if there is none.
func (d *Directory) get(ctx context.Context, dest any, text string, args ...any) error {
	return d.reads.Get(ctx, dest, text, args...)
}

// list reads all rows into dest, a pointer to a slice.
func (d *Directory) list(ctx context.Context, dest any, text string, args ...any) error {
	return d.reads.List(ctx, dest, text, args...)
}

// change runs fn in a transaction; see sqlite.File.Write.
func (d *Directory) change(ctx context.Context, w sqlite.Work, fn func(*sqlite.Tx) error) error {
	return d.file.Write(ctx, w, fn)
}

// returning is change for a function that makes something; see sqlite.Returning.
func returning[T any](ctx context.Context, d *Directory, w sqlite.Work, fn func(*sqlite.Tx) (T, error)) (T, error) {
	return sqlite.Returning(func(fn func(*sqlite.Tx) error) error { return d.file.Write(ctx, w, fn) }, fn)
}

// workFor is work that an organization asks for.
func workFor(organization int64) sqlite.Work { return sqlite.Work{Payer: organization} }

// audited is work whose cost includes the deliveries of its audit event.
func (d *Directory) audited(w sqlite.Work, eventType string) sqlite.Work {
	w.Measure = func(t *sqlite.Tx) (int, error) { return d.hooks.AuditCost(t, w.Payer, eventType) }
	return w
}

// urgentFor is work that goes before all other work, because it may withdraw rights: until it is done, the rights still apply.
func urgentFor(organization int64) sqlite.Work {
	return sqlite.Work{Payer: organization, Urgent: true, Reserve: true}
}
