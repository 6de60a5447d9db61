package directory

import (
	"context"
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

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
	case access.UserErased: // this reads all members that apply created
		err = t.Exec(`
			DELETE FROM applied WHERE kind = 'user' AND key = ?1 OR kind = 'member' AND substr(key, instr(key, '/') + 1) = ?1`, key)
	}
	if err != nil {
		return fmt.Errorf("track what apply created, after %s of %s %s: %w", eventType, kind, key, err)
	}
	return nil
}
