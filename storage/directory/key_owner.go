package directory

import (
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// keyOwner is the user to whom a new key belongs, and what decides about the key: the plan of the organization, and the user's
// role there. The key acts as this user.
type keyOwner struct {
	User      int64       `db:"user_id"` // row id; 0 is the service account, which does not exist yet
	IsService bool        `db:"is_service"`
	Plan      bool        `db:"api_keys"`
	Member    bool        `db:"member"` // the user is active and a member
	Role      access.Role `db:"role"`
}

// ownerOf returns the owner of a new key that by creates: the user with the given id or external id, who must be a member, or the
// service account, or by's user. If the id is empty, a member creates its own keys. A caller who acts in the organization with
// platform:act_as and is not a member creates keys of the service account.
func ownerOf(t *sqlite.Tx, by access.Principal, named string) (o keyOwner, err error) {
	// A credential that was revoked meanwhile must not create another.
	if err := principal.NotRevoked(t, by.Authority()); err != nil {
		return o, err
	}
	if named != "" && !by.User.IsNamed(named) {
		return namedOwner(t, by, named)
	}
	o, err = memberOwner(t, by.Organization.RowID, by.User.RowID)
	elsewhere := by.Organization.RowID != by.Home.RowID
	// The built-in user has a role everywhere, but it is a member of no organization.
	if err != nil || named != "" || !elsewhere || o.Member && !by.User.BuiltIn {
		return o, err
	}
	own, err := principal.PermissionsOf(t, by.Authority())
	if err != nil || !own.Has(access.PlatformActAs) {
		return o, err
	}
	return serviceOwner(t, by.Organization.RowID)
}

// namedOwner returns another user than by's as the owner of a new key. A key acts as its owner, so by needs platform:act_as. Faults:
// Forbidden without it; Invalid if the user does not exist or is not a member.
func namedOwner(t *sqlite.Tx, by access.Principal, named string) (o keyOwner, err error) {
	own, err := principal.PermissionsOf(t, by.Authority())
	if err != nil {
		return o, err
	}
	if !own.Has(access.PlatformActAs) {
		return o, fault.New(fault.Forbidden, access.CodeDenied,
			"To create an API key of another user, you need the permission %s; without it, leave user_id out.", access.PlatformActAs)
	}
	user, err := changeableUser(t, named)
	if user.BuiltIn { // it is a member of no organization, and no list shows it
		err = fault.Missing("user")
	}
	if err != nil {
		return o, unknownField(err, "user_id", "user")
	}
	if user.ServiceOf != nil && *user.ServiceOf == by.Organization.RowID {
		return serviceOwner(t, by.Organization.RowID)
	}
	if o, err = memberOwner(t, by.Organization.RowID, user.RowID); err != nil || o.Member {
		return o, err
	}
	return o, fault.InField("user_id", "not_a_member",
		"This user is not an active member of the organization; name a member, or leave user_id out.")
}

func memberOwner(t *sqlite.Tx, organization, user int64) (keyOwner, error) {
	return sqlite.One[keyOwner](t, "organization", `
		SELECT ?2 AS user_id, p.api_keys, u.is_active IS 1 AND r.id IS NOT NULL AS member, `+principal.ActingRoleColumns+`
		FROM organizations o JOIN plans p ON p.id = o.plan_id
		LEFT JOIN users u ON u.id = ?2
		LEFT JOIN memberships m ON m.organization_id = o.id AND m.user_id = u.id`+principal.JoinActingRole+`
		WHERE o.id = ?1`, organization, user)
}

// serviceOwner returns the service account of an organization as the owner of a new key, even if the account does not exist yet.
// Faults: Conflict if it is inactive.
func serviceOwner(t *sqlite.Tx, organization int64) (o keyOwner, err error) {
	o, err = sqlite.One[keyOwner](t, "organization", `
		SELECT coalesce(u.id, 0) AS user_id, 1 AS is_service, p.api_keys, coalesce(u.is_active, 1) AS member, `+principal.ActingRoleColumns+`
		FROM organizations o JOIN plans p ON p.id = o.plan_id
		JOIN roles r ON r.name = '`+access.RoleOwner+`'
		LEFT JOIN users u ON u.service_of = o.id
		WHERE o.id = ?`, organization)
	if err == nil && !o.Member {
		err = fault.New(fault.Conflict, "user_inactive",
			"The service account of the organization is not active; set its is_active to true, or name another member in user_id.")
	}
	return o, err
}

// ownerAfter returns the owner of the key that replaces another one: by's user, as for a new key. But a key of the service account
// stays with the service account, so that it does not end when the user leaves who rotated it.
func ownerAfter(t *sqlite.Tx, by access.Principal, old access.Key) (o keyOwner, err error) {
	if o, err = ownerOf(t, by, ""); err != nil || o.IsService || !old.CreatorIsService {
		return o, err
	}
	if !o.Member {
		return o, notMember("The creator of the key")
	}
	return serviceOwner(t, by.Organization.RowID)
}

// nameOwner adds the owner of a new key to the details of an audit event, unless by's user is the owner.
func nameOwner(details map[string]any, by access.Principal, k access.Key) {
	if k.CreatedBy != by.User.ID {
		details["created_by"] = k.CreatedBy
	}
}

// makeOwner returns the row id of an owner. It creates the service account of an organization when it is first needed.
func (d *Directory) makeOwner(t *sqlite.Tx, by access.Actor, organization int64, o keyOwner) (int64, error) {
	if !o.IsService {
		return o.User, nil
	}
	if o.User == 0 {
		made, err := d.createUser(t, by, access.User{Name: "Service account", ServiceOf: &organization, IsActive: true})
		if err != nil {
			return 0, err
		}
		o.User = made.RowID
	}
	_, err := member(t, organization, o.User)
	if fault.KindOf(err) == fault.NotFound { // No cached principal changes: the account has no live key, and putMember deletes its sessions.
		_, err = d.putMember(t, by, organization, o.User, access.RoleOwner, "")
	}
	return o.User, err
}

// mayBeMember refuses a membership of a service account other than its own: owner of its organization.
func mayBeMember(u access.User, organization int64, role string) error {
	if !u.IsService() || *u.ServiceOf == organization && role == access.RoleOwner {
		return nil
	}
	return fault.New(fault.Conflict, "service_account",
		"This user is a service account: it has the role %s in its own organization, and no other. Choose another user.", access.RoleOwner)
}

// mayLeave refuses to remove a service account while keys of it are live: they would end at once.
func mayLeave(t *sqlite.Tx, u access.User) error {
	if !u.IsService() {
		return nil
	}
	return sqlite.RefuseIf(t, errInUse("service account", "API keys belong to it; revoke these keys first"), `
		SELECT 1 FROM api_keys WHERE user_id = ? AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)`, u.RowID, t.Now())
}

// maySignIn refuses to let anybody sign in as a service account: by an access token, an e-mail address or an external id.
func maySignIn(u access.User) error {
	if !u.IsService() {
		return nil
	}
	return fault.New(fault.Invalid, "service_account",
		"This user is the service account of an organization. Nobody signs in as it, so it has no access tokens, no e-mail address and "+
			"no external id. Create an API key in that organization instead.")
}
