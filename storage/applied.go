package storage

import (
	"context"
	"fmt"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// Applied lists what `keyhook apply` has created and nobody has deleted since, the newest first.
func (s *Store) Applied(ctx context.Context, before int64, limit int) ([]access.Applied, error) {
	applied := []access.Applied{}
	err := s.list(ctx, &applied, "SELECT id, kind, key FROM applied WHERE id < ? ORDER BY id DESC LIMIT ?", scan.UpperBound(before), limit)
	return applied, err
}

// AppliedObject returns one object that `keyhook apply` has created. Faults: NotFound.
func (s *Store) AppliedObject(ctx context.Context, kind, key string) (found access.Applied, err error) {
	err = s.get(ctx, &found, "SELECT id, kind, key FROM applied WHERE kind = ? AND key = ?", kind, key)
	return found, sqlite.Missing(err, "applied object")
}

// ForgetApplied forgets that apply has created an object, which stays. Faults: NotFound.
func (s *Store) ForgetApplied(ctx context.Context, by access.Actor, kind, key string) error {
	return s.workFor(by.Organization).change(ctx, func(t *tx) error {
		n, err := t.Affected("DELETE FROM applied WHERE kind = ? AND key = ?", kind, key)
		switch {
		case err != nil:
			return err
		case n == 0:
			return fault.Missing("applied object")
		}
		return s.audit(t, by, 0, access.AppliedForgotten, auditTarget{Type: kind, ID: key}, nil)
	})
}

// trackApplied keeps the table applied up to date. The audit log learns of every creation and deletion in the transaction of the
// change, so this has the same one place: an object is remembered if and only if it exists.
func (s *Store) trackApplied(t *tx, by access.Actor, organization int64, eventType string, about auditTarget, details map[string]any) error {
	switch eventType {
	case access.PlanCreated, access.PermissionCreated, access.RoleCreated, access.OrganizationCreated, access.UserCreated, access.SubscriptionCreated:
		return rememberApplied(t, by, about.Type, about.ID)
	case access.PlanDeleted, access.PermissionDeleted, access.RoleDeleted, access.OrganizationDeleted, access.UserDeleted, access.SubscriptionDeleted:
		return forgetApplied(t, about.Type, about.ID)
	case access.OrganizationClosed:
		return forgetClosed(t, about.ID)
	case access.UserErased:
		return forgetErased(t, about.ID)
	case access.MemberSet, access.MemberRemoved:
		in, err := t.organizationID(organization)
		if err != nil {
			return err
		}
		member := access.MemberKey(in, about.ID)
		if eventType == access.MemberRemoved {
			return forgetApplied(t, access.KindMember, member)
		}
		if _, wasMember := details["previous_role"]; wasMember {
			return nil
		}
		return rememberApplied(t, by, access.KindMember, member)
	}
	return nil
}

func rememberApplied(t *tx, by access.Actor, kind, key string) error {
	if !by.Applying {
		return nil
	}
	if _, err := t.Exec("INSERT INTO applied (kind, key) VALUES (?, ?)", kind, key); err != nil {
		return fmt.Errorf("remember that apply created a %s: %w", kind, err)
	}
	return nil
}

func forgetApplied(t *tx, kind, key string) error {
	if _, err := t.Exec("DELETE FROM applied WHERE kind = ? AND key = ?", kind, key); err != nil {
		return fmt.Errorf("forget that apply created a %s: %w", kind, err)
	}
	return nil
}

// forgetClosed forgets an organization that is being closed, its members and its subscriptions.
func forgetClosed(t *tx, organization string) error {
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
func forgetErased(t *tx, user string) error {
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
