// Package directory owns the changes of who may do what: organizations, users, members, roles, permissions, plans, API keys, access tokens
// and sessions. It does not know events, subscriptions or how the audit log is kept: Hooks do that. What also ends something in other
// tables is a function of a transaction: the owner of the transaction calls it. The principals of credentials are in package principal.
package directory

import (
	"sync/atomic"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// Directory is the part of the open database with users, permissions and credentials. Writes wait until the file runs.
type Directory struct {
	file   *sqlite.File
	reads  *sqlite.Pool
	logs   *scan.Reader
	quotas *quota.Quotas
	hooks  Hooks

	*principal.Reader // of the same file
	uses              credentialUses
	firstRequest      atomic.Bool // there was an authenticated request; from then on, no start creates a bootstrap token
	firstRequestKept  bool        // the file says so; only KeepFirstRequest uses it
	bootstrapCreated  bool
	bootstrapRefused  bool
}

// Hooks are what the owner of the other tables does in a transaction of the directory. All are required.
type Hooks struct {
	// Audit writes an audit event. Organization 0 means a change of the whole instance, see Actor.LogOrganization.
	Audit func(t *sqlite.Tx, by access.Actor, organization int64, eventType string, about Target, details map[string]any) error
	// AuditCost returns about how many rows a write with an audit event of this type writes.
	AuditCost func(t *sqlite.Tx, organization int64, eventType string) (int, error)
	// WebhooksChanged is called after an organization or a plan has got webhooks, or no longer has them.
	WebhooksChanged func(t *sqlite.Tx)
}

// Target is what an audit event is about.
type Target = audit.Target

// New returns the directory of an open file. Requests wait for reads; lists that may be long use logs.
func New(file *sqlite.File, reads *sqlite.Pool, logs *scan.Reader, quotas *quota.Quotas, hooks Hooks) *Directory {
	d := &Directory{file: file, reads: reads, logs: logs, quotas: quotas, hooks: hooks}
	d.Reader = principal.New(reads, d.bindSubject)
	return d
}

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
