// Package applied owns the list of what `keyhook apply` has created and nobody has deleted since. It learns of creations and deletions
// from their audit events, and does not know the objects.
package applied

import (
	"context"
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// List has the objects that `keyhook apply` has created and nobody has deleted since.
type List struct{ o Options }

// Options are what the list needs. All are required.
type Options struct {
	File  *sqlite.File
	Reads *sqlite.Pool
	// Forgotten writes the audit event after a caller removed an object from the list.
	Forgotten func(t *sqlite.Tx, by access.Actor, kind, key string) error
}

// New returns the list of an open database.
func New(o Options) *List { return &List{o} }

// Applied lists the objects, the newest first.
func (l *List) Applied(ctx context.Context, before int64, limit int) ([]access.Applied, error) {
	applied := []access.Applied{}
	err := l.o.Reads.List(ctx, &applied, "SELECT id, kind, key FROM applied WHERE id < ? ORDER BY id DESC LIMIT ?", scan.UpperBound(before), limit)
	return applied, err
}

// AppliedObject returns one of the objects. Faults: NotFound.
func (l *List) AppliedObject(ctx context.Context, kind, key string) (found access.Applied, err error) {
	err = l.o.Reads.Get(ctx, &found, "SELECT id, kind, key FROM applied WHERE kind = ? AND key = ?", kind, key)
	return found, sqlite.Missing(err, "applied object")
}

// ForgetApplied removes an object from the list. The object stays. Faults: NotFound.
func (l *List) ForgetApplied(ctx context.Context, by access.Actor, kind, key string) error {
	return l.o.File.Write(ctx, sqlite.Work{Payer: by.Organization}, func(t *sqlite.Tx) error {
		n, err := t.Affected("DELETE FROM applied WHERE kind = ? AND key = ?", kind, key)
		switch {
		case err != nil:
			return err
		case n == 0:
			return fault.Missing("applied object")
		}
		return l.o.Forgotten(t, by, kind, key)
	})
}

// Track keeps the list up to date. The audit log learns of every creation and deletion in the transaction of the change. So Track is
// called for each audit event, and an object is in the list if and only if it exists. organization is the public id of the
// organization of a member.
func Track(t *sqlite.Tx, by access.Actor, organization, eventType string, about audit.Target, details map[string]any) error {
	switch eventType {
	case access.PlanCreated, access.PermissionCreated, access.RoleCreated, access.OrganizationCreated, access.UserCreated, access.SubscriptionCreated:
		return remember(t, by, about.Type, about.ID)
	case access.PlanDeleted, access.PermissionDeleted, access.RoleDeleted, access.OrganizationDeleted, access.UserDeleted, access.SubscriptionDeleted:
		return forget(t, about.Type, about.ID)
	case access.OrganizationClosed:
		return forgetClosed(t, about.ID)
	case access.UserErased:
		return forgetErased(t, about.ID)
	case access.MemberSet, access.MemberRemoved:
		member := access.MemberKey(organization, about.ID)
		if eventType == access.MemberRemoved {
			return forget(t, access.KindMember, member)
		}
		if _, wasMember := details["previous_role"]; wasMember {
			return nil
		}
		return remember(t, by, access.KindMember, member)
	}
	return nil
}

func remember(t *sqlite.Tx, by access.Actor, kind, key string) error {
	if !by.Applying {
		return nil
	}
	if _, err := t.Exec("INSERT INTO applied (kind, key) VALUES (?, ?)", kind, key); err != nil {
		return fmt.Errorf("remember that apply created a %s: %w", kind, err)
	}
	return nil
}

func forget(t *sqlite.Tx, kind, key string) error {
	if _, err := t.Exec("DELETE FROM applied WHERE kind = ? AND key = ?", kind, key); err != nil {
		return fmt.Errorf("forget that apply created a %s: %w", kind, err)
	}
	return nil
}

// forgetClosed forgets an organization that is being closed, its members and its subscriptions.
func forgetClosed(t *sqlite.Tx, organization string) error {
	for _, statement := range []string{
		"DELETE FROM applied WHERE kind = '" + access.KindOrganization + "' AND key = ?",
		"DELETE FROM applied WHERE kind = '" + access.KindMember + "' AND key > ?1 || '/' AND key < ?1 || '0'", // 0 comes after the slash
		"DELETE FROM applied WHERE kind = '" + access.KindSubscription + `' AND key IN (
			SELECT s.public_id FROM organizations o JOIN subscriptions s ON s.organization_id = o.id WHERE o.public_id = ?)`,
	} {
		if _, err := t.Exec(statement, organization); err != nil {
			return fmt.Errorf("forget what apply created of an organization: %w", err)
		}
	}
	return nil
}

// forgetErased forgets a user who is being erased, and the memberships of the user. It reads all members that apply created.
func forgetErased(t *sqlite.Tx, user string) error {
	for _, statement := range []string{
		"DELETE FROM applied WHERE kind = '" + access.KindUser + "' AND key = ?",
		"DELETE FROM applied WHERE kind = '" + access.KindMember + "' AND substr(key, instr(key, '/') + 1) = ?",
	} {
		if _, err := t.Exec(statement, user); err != nil {
			return fmt.Errorf("forget what apply created of a user: %w", err)
		}
	}
	return nil
}
