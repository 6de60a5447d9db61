package directory

import (
	"cmp"
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

const selectMembers = `
	SELECT m.user_id, u.public_id AS user_public_id, coalesce(u.email, '') AS email, u.name, u.service_of IS NOT NULL AS is_service,
	       r.name AS role, m.created_at
	FROM memberships m JOIN users u ON u.id = m.user_id JOIN roles r ON r.id = m.role_id`

// Members lists the members of an organization, newest user first. Faults: NotFound.
func (d *Directory) Members(ctx context.Context, organization string, before int64, limit int) ([]access.Member, error) {
	o, err := d.Organization(ctx, organization)
	if err != nil {
		return nil, err
	}
	return sqlite.All[access.Member](d.reads.In(ctx), selectMembers+" WHERE m.organization_id = ? AND m.user_id < ? ORDER BY m.user_id DESC LIMIT ?",
		o.RowID, scan.UpperBound(before), limit)
}

// Memberships lists the organizations of a user with the role in each, newest organization first. Faults: NotFound.
func (d *Directory) Memberships(ctx context.Context, user string, before int64, limit int) ([]access.Membership, error) {
	u, err := d.User(ctx, user)
	if err != nil {
		return nil, err
	}
	return sqlite.All[access.Membership](d.reads.In(ctx), `
		SELECT m.organization_id, o.public_id AS organization_public_id, o.name, o.external_id, r.name AS role, m.created_at
		FROM memberships m INDEXED BY memberships_by_user
		CROSS JOIN organizations o ON o.id = m.organization_id CROSS JOIN roles r ON r.id = m.role_id
		WHERE m.user_id = ? AND m.organization_id < ? ORDER BY m.organization_id DESC LIMIT ?`, u.RowID, scan.UpperBound(before), limit)
}

// SetMember gives a user a role in an organization, or replaces the role there. It applies from the next request on. Faults:
// NotFound; Invalid if the role is unknown; Forbidden if the role has more permissions than by; Conflict if no active operator would
// be left, and for a service account, which keeps its role.
func (d *Directory) SetMember(ctx context.Context, by access.Actor, organization, user, role string) (access.Member, error) {
	return sqlite.Returning(ctx, d.file, urgentFor(by.Organization), func(t *sqlite.Tx) (set access.Member, err error) {
		in, who, err1 := membership(t, organization, user)
		given, err2 := roleNamed(t, role)
		if err := cmp.Or(err1, unknownField(err2, "role", "role")); err != nil {
			return set, err
		}
		o, u := in.RowID, who.RowID
		before, err := member(t, o, u)
		if err != nil && fault.KindOf(err) != fault.NotFound {
			return set, err
		}
		if before.Role == role {
			return before, nil
		}
		allowed := mayGrant(t, by, given.Permissions, o != by.Authority.Home)
		if err := cmp.Or(t.Withdraws(before.Role != ""), mayBeMember(who, o, role), allowed, requireAnotherOperator(t, u, o)); err != nil {
			return set, err
		}
		d.OutdatePrincipals(t)
		return d.putMember(t, by, o, u, role, before.Role)
	})
}

// RemoveMember removes a user from an organization. The user's credentials there are refused from the next request on. Faults:
// NotFound, also if the user is not a member; Conflict for the last active operator, and for a service account with live keys.
func (d *Directory) RemoveMember(ctx context.Context, by access.Actor, organization, user string) error {
	return d.file.Write(ctx, urgentFor(by.Organization), func(t *sqlite.Tx) error {
		in, who, err := membership(t, organization, user)
		if err != nil {
			return err
		}
		o, u := in.RowID, who.RowID
		before, err := member(t, o, u)
		if err := cmp.Or(err, requireAnotherOperator(t, u, o), mayLeave(t, who)); err != nil {
			return err
		}
		if err := t.Exec("DELETE FROM memberships WHERE organization_id = ? AND user_id = ?", o, u); err != nil {
			return err
		}
		d.OutdatePrincipals(t)
		return d.hooks.Audit(t, by, o, access.MemberRemoved, Target{Type: "user", ID: who.ID}, map[string]any{"role": before.Role})
	})
}

// membership returns the openOrganization and the changeableUser of a membership, which need not exist. Faults: NotFound; Conflict.
func membership(t *sqlite.Tx, organization, user string) (in access.Organization, who access.User, err error) {
	in, err1 := openOrganization(t, organization)
	who, err2 := changeableUser(t, user)
	return in, who, cmp.Or(err1, err2)
}

func member(t *sqlite.Tx, organization, user int64) (access.Member, error) {
	return sqlite.One[access.Member](t, "member", selectMembers+" WHERE m.organization_id = ? AND m.user_id = ?", organization, user)
}

// putMember gives a user a role, and audits it. previous is the role until now; empty if the user is not a member yet.
func (d *Directory) putMember(t *sqlite.Tx, by access.Actor, organization, user int64, role, previous string) (set access.Member, err error) {
	if err := upsertMember(t, organization, user, role); err != nil {
		return set, err
	}
	if set, err = member(t, organization, user); err != nil {
		return set, err
	}
	details := map[string]any{"role": role}
	if previous != "" {
		details["previous_role"] = previous
	} else { // sessions and links of an earlier membership stay without effect
		if err := t.Exec("DELETE FROM sessions WHERE organization_id = ? AND user_id = ?", organization, user); err != nil {
			return set, err
		}
		if err := t.Exec("DELETE FROM sign_in_links WHERE organization_id = ? AND user_id = ?", organization, user); err != nil {
			return set, err
		}
	}
	return set, d.hooks.Audit(t, by, organization, access.MemberSet, Target{Type: "user", ID: set.UserID}, details)
}

func upsertMember(t *sqlite.Tx, organization, user int64, role string) error {
	return t.Exec(`
		INSERT INTO memberships (organization_id, user_id, role_id, created_at) VALUES (?, ?, (SELECT id FROM roles WHERE name = ?), ?)
		ON CONFLICT (organization_id, user_id) DO UPDATE SET role_id = excluded.role_id`, organization, user, role, t.Now())
}
