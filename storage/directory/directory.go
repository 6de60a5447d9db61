// Package directory owns the changes of who may do what: organizations, users, members, roles, permissions, plans, API keys, access
// tokens and sessions. It does not know events, subscriptions or how the audit log is kept: Hooks do that. What also ends something in
// other tables is a function of a transaction: the owner of the transaction calls it. The principals of credentials are in package
// principal.
package directory

import (
	"context"
	"fmt"
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

// The directory has a list of what `keyhook apply` has created and nobody has deleted since, so that apply deletes nothing else.

// Applied lists the objects that `keyhook apply` has created and nobody has deleted since, the newest first.
func (d *Directory) Applied(ctx context.Context, before int64, limit int) ([]access.Applied, error) {
	return sqlite.All[access.Applied](d.reads.In(ctx),
		"SELECT id, kind, key FROM applied WHERE id < ? ORDER BY id DESC LIMIT ?", scan.UpperBound(before), limit)
}

// AppliedObject returns one of the objects. Faults: NotFound.
func (d *Directory) AppliedObject(ctx context.Context, kind, key string) (access.Applied, error) {
	return sqlite.One[access.Applied](d.reads.In(ctx), "applied object", "SELECT id, kind, key FROM applied WHERE kind = ? AND key = ?", kind, key)
}

// TrackApplied keeps the list up to date. The audit log learns of every creation and deletion in the transaction of the change. So it is
// called for each audit event, and an object is in the list if and only if it exists. organization is the public id of the
// organization of a member.
func TrackApplied(t *sqlite.Tx, by access.Actor, organization, eventType string, about Target, details map[string]any) (err error) {
	kind, key := about.Type, about.ID
	if eventType == access.MemberSet || eventType == access.MemberRemoved {
		kind, key = access.KindMember, access.MemberKey(organization, about.ID)
	}
	switch eventType {
	case access.PlanCreated, access.PermissionCreated, access.RoleCreated, access.EventTypeCreated,
		access.OrganizationCreated, access.UserCreated, access.SubscriptionCreated, access.MemberSet:
		if _, wasMember := details["previous_role"]; by.Applying && !wasMember {
			err = t.Exec("INSERT INTO applied (kind, key) VALUES (?, ?)", kind, key)
		}
	case access.PlanDeleted, access.PermissionDeleted, access.RoleDeleted, access.EventTypeDeleted,
		access.OrganizationDeleted, access.UserDeleted, access.SubscriptionDeleted, access.MemberRemoved:
		err = t.Exec("DELETE FROM applied WHERE kind = ? AND key = ?", kind, key)
	case access.OrganizationClosed: // 0 comes after the slash
		err = t.Exec(`
			DELETE FROM applied
			WHERE kind = 'organization' AND key = ?1 OR kind = 'member' AND key > ?1 || '/' AND key < ?1 || '0' OR kind = 'subscription' AND key IN (
				SELECT s.public_id FROM organizations o JOIN subscriptions s ON s.organization_id = o.id WHERE o.public_id = ?1)`, key)
	case access.UserErased: // its memberships end later
		err = t.Exec(`
			DELETE FROM applied
			WHERE kind = 'user' AND key = ?1 OR kind = 'member' AND key IN (
				SELECT o.public_id || '/' || u.public_id FROM users u JOIN memberships m ON m.user_id = u.id JOIN organizations o ON o.id = m.organization_id
				WHERE u.public_id = ?1)`, key)
	}
	if err != nil {
		return fmt.Errorf("track what apply created, after %s of %s %s: %w", eventType, kind, key, err)
	}
	return nil
}
