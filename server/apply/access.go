package apply

import (
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// present notes whether a lookup has found the object of an item. It returns any other failure.
func present(i *item, err error) error {
	i.isNew = fault.KindOf(err) == fault.NotFound
	if i.isNew {
		return nil
	}
	return err
}

func (r *run) makePlan(i *item) error {
	i.Require("name", "api_rate_limit_per_minute")
	name, c := i.Slug("name"), i.Plan()
	i.name = valueOf(name)
	if err := i.Err(); err != nil {
		return err
	}
	before, err := r.Store.Plan(r.ctx, i.name)
	if err := present(i, err); err != nil {
		return err
	}
	if err := r.identify(i, access.KindPlan, i.name); err != nil {
		return err
	}
	c.APIKeys = compare(i, "api_keys", c.APIKeys, before.APIKeys, false)
	c.Webhooks = compare(i, "webhooks", c.Webhooks, before.Webhooks, false)
	c.SetRateLimit, c.RateLimitPerMinute = compareLimit(i, "api_rate_limit_per_minute", c.SetRateLimit, c.RateLimitPerMinute, before.RateLimitPerMinute)
	c.SetMaxSubscriptions, c.MaxSubscriptions = compareLimit(i, "max_subscriptions", c.SetMaxSubscriptions, c.MaxSubscriptions, before.MaxSubscriptions)
	c.SetMaxAPIKeys, c.MaxAPIKeys = compareLimit(i, "max_api_keys", c.SetMaxAPIKeys, c.MaxAPIKeys, before.MaxAPIKeys)
	c.SetMaxStoredBytes, c.MaxStoredBytes = compareLimit(i, "max_stored_bytes_per_day", c.SetMaxStoredBytes, c.MaxStoredBytes, before.MaxStoredBytes)
	switch {
	case r.looks || i.isSame():
		return nil
	case i.isNew:
		_, err = r.Store.CreatePlan(r.ctx, r.by, c.New(i.name))
	default:
		_, err = r.Store.UpdatePlan(r.ctx, r.by, i.name, c)
	}
	return err
}

func (r *run) makePermission(i *item) error {
	i.Require("key")
	key, description, internal := i.PermissionKey("key"), i.Multiline("description"), i.Bool("internal")
	i.name = valueOf(key)
	if err := i.Err(); err != nil {
		return err
	}
	before, err := r.Store.Permission(r.ctx, i.name)
	if err := present(i, err); err != nil {
		return err
	}
	if err := r.identify(i, access.KindPermission, i.name); err != nil {
		return err
	}
	if !i.isNew && before.BuiltIn {
		return builtIn(i, access.KindPermission)
	}
	if !i.isNew && internal != nil && *internal != before.Internal {
		i.Refuse("internal", "fixed", "This never changes after the creation, and it is %t on the server; delete the permission first, or leave the field out.", before.Internal)
		return i.Err()
	}
	description = compare(i, "description", description, before.Description, "")
	if i.isNew {
		compare(i, "internal", internal, false, false)
	}
	switch {
	case r.looks || i.isSame():
		return nil
	case i.isNew:
		_, err = r.Store.CreatePermission(r.ctx, r.by, access.Permission{Key: i.name, Description: valueOf(description), Internal: valueOf(internal)})
	default:
		_, err = r.Store.UpdatePermission(r.ctx, r.by, i.name, *description)
	}
	return err
}

func (r *run) makeRole(i *item) error {
	i.Require("name", "permissions")
	name, granted := i.Slug("name"), r.lookup.Permissions(r.ctx, i.Form, "permissions")
	i.name = valueOf(name)
	for _, key := range valueOf(granted).Keys() {
		if r.isPruned(identity(access.KindPermission, key)) {
			i.Refuse("permissions", "pruned", "prune would remove %s, which is not in the document; put it back, or remove it here.", key)
		}
	}
	if err := i.Err(); err != nil {
		return err
	}
	before, err := r.Store.Role(r.ctx, i.name)
	if err := present(i, err); err != nil {
		return err
	}
	if err := r.identify(i, access.KindRole, i.name); err != nil {
		return err
	}
	if !i.isNew && before.BuiltIn {
		return builtIn(i, access.KindRole)
	}
	compare(i, "permissions", new(granted.Keys()), before.Permissions.Keys(), nil)
	switch {
	case r.looks || i.isSame():
		return nil
	case i.isNew:
		_, err = r.Store.CreateRole(r.ctx, r.by, access.Role{Name: i.name, Permissions: *granted})
	default:
		_, err = r.Store.UpdateRole(r.ctx, r.by, i.name, access.RoleChange{Permissions: granted})
	}
	return err
}

// builtIn refuses to change an object that is built in.
func builtIn(i *item, kind string) error {
	i.Refuse("", "built_in", "The %s is built in and cannot be changed; remove it from the document.", kind)
	return i.Err()
}

func (r *run) makeMember(i *item) error {
	i.Require("organization", "user", "role")
	in, err := reference(r, i, "organization", r.Store.Organization, func(o access.Organization) string { return o.ID })
	if err != nil {
		return err
	}
	who, err := reference(r, i, "user", r.Store.User, func(u access.User) string { return u.ID })
	if err != nil {
		return err
	}
	given, err := reference(r, i, "role", r.Store.Role, func(role access.Role) string { return role.Name })
	if err != nil {
		return err
	}
	i.name = r.namePair(i, "organization", "user")
	if err := i.Err(); err != nil || i.skipped {
		return err
	}
	members, err := r.Store.Members(r.ctx, in.ID, who.RowID+1, 1)
	if err != nil {
		return err
	}
	before := access.Member{}
	if i.isNew = len(members) == 0 || members[0].UserID != who.ID; !i.isNew {
		before = members[0]
	}
	if err := r.identify(i, access.KindMember, access.MemberKey(in.ID, who.ID)); err != nil {
		return err
	}
	compare(i, "role", &given.Name, before.Role, "")
	if !r.looks && !i.isSame() {
		_, err = r.Store.SetMember(r.ctx, r.by, in.ID, who.ID, given.Name)
	}
	return err
}
