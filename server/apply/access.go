package apply

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// object is how an item becomes an object of the server.
type object[T any] struct {
	pair    string                                            // names a new object that has no name of its own; the item's is ambiguous, because a part may have a slash
	find    func(ctx context.Context, name string) (T, error) // NotFound if there is none
	key     func(T) string                                    // in the list of applied objects
	compare func(before T)                                    // notes the fields that change, and problems; before is empty for a new object
	create  func() (T, error)
	update  func(before T) (T, error) // nil: create does it too
}

// settle creates or changes the object of an item, unless it is as the document says. With problems, a comparison only identifies it.
func settle[T any](r *run, i *item, o object[T]) error {
	wrong := i.Err()
	if i.skipped || wrong != nil && !r.looks {
		return wrong
	}
	before, err := o.find(r.ctx, i.name)
	if i.isNew = fault.KindOf(err) == fault.NotFound; err != nil && !i.isNew {
		return err
	}
	key := "new " + cmp.Or(o.pair, i.name)
	if !i.isNew {
		key = o.key(before)
	}
	if err := r.identify(i, key); err != nil || wrong != nil { // with a problem, it is in the document nevertheless, so prune keeps it
		return cmp.Or(err, wrong)
	}
	o.compare(before)
	if err := i.Err(); err != nil || r.looks || i.isSame() {
		return err
	}
	if !i.isNew && o.update != nil {
		_, err = o.update(before)
		return err
	}
	made, err := o.create()
	r.named[identity(i.kind, o.key(made))] = i.path
	return err
}

func (r *run) makePlan(i *item) error {
	i.Require("name", "api_rate_limit_per_minute")
	name, c := i.Slug("name"), i.Plan()
	i.name = form.Or(name, "")
	return settle(r, i, object[access.Plan]{
		find: r.Store.Plan, key: nameOfPlan,
		compare: func(before access.Plan) {
			c.APIKeys = compare(i, "api_keys", c.APIKeys, before.APIKeys, false)
			c.Webhooks = compare(i, "webhooks", c.Webhooks, before.Webhooks, false)
			c.RateLimitPerMinute = compare(i, "api_rate_limit_per_minute", c.RateLimitPerMinute, before.RateLimitPerMinute, nil)
			c.MaxSubscriptions = compare(i, "max_subscriptions", c.MaxSubscriptions, before.MaxSubscriptions, nil)
			c.MaxAPIKeys = compare(i, "max_api_keys", c.MaxAPIKeys, before.MaxAPIKeys, nil)
			c.MaxStoredBytes = compare(i, "max_stored_bytes_per_day", c.MaxStoredBytes, before.MaxStoredBytes, nil)
		},
		create: func() (access.Plan, error) { return r.Store.CreatePlan(r.ctx, r.by, c.On(access.Plan{Name: i.name})) },
		update: func(access.Plan) (access.Plan, error) { return r.Store.UpdatePlan(r.ctx, r.by, i.name, c) },
	})
}

func nameOfPlan(p access.Plan) string { return p.Name }

func (r *run) makePermission(i *item) error {
	i.Require("key")
	key, description, internal := i.PermissionKey("key"), i.Multiline("description"), i.Bool("internal")
	i.name = form.Or(key, "")
	return settle(r, i, object[access.Permission]{
		find: r.Store.Permission, key: func(p access.Permission) string { return p.Key },
		compare: func(before access.Permission) {
			description = compare(i, "description", description, before.Description, "")
			switch {
			case before.BuiltIn:
				i.refuseBuiltIn()
			case i.isNew:
				compare(i, "internal", internal, false, false)
			case internal != nil && *internal != before.Internal:
				i.Refuse("internal", "fixed", "This never changes after the creation, and it is %t on the server; delete the permission first, or leave the field out.", before.Internal)
			}
		},
		create: func() (access.Permission, error) {
			return r.Store.CreatePermission(r.ctx, r.by, access.Permission{Key: i.name, Description: form.Or(description, ""), Internal: form.Or(internal, false)})
		},
		update: func(access.Permission) (access.Permission, error) {
			return r.Store.UpdatePermission(r.ctx, r.by, i.name, *description)
		},
	})
}

func (r *run) makeRole(i *item) error {
	i.Require("name", "permissions")
	name, granted := i.Slug("name"), r.lookup.Permissions(r.ctx, i.Form, "permissions")
	i.name = form.Or(name, "")
	for _, key := range form.Or(granted, access.Scope{}).Keys() {
		if r.isPruned(identity(access.KindPermission, key)) {
			i.Refuse("permissions", "pruned", "prune would remove %s, which is not in the document; put it back, or remove it here.", key)
		}
	}
	return settle(r, i, object[access.Role]{
		find: r.Store.Role, key: nameOfRole,
		compare: func(before access.Role) {
			if before.BuiltIn {
				i.refuseBuiltIn()
			}
			compare(i, "permissions", new(granted.Keys()), before.Permissions.Keys(), nil)
		},
		create: func() (access.Role, error) {
			return r.Store.CreateRole(r.ctx, r.by, access.Role{Name: i.name, Permissions: *granted})
		},
		update: func(access.Role) (access.Role, error) {
			return r.Store.UpdateRole(r.ctx, r.by, i.name, access.RoleChange{Permissions: granted})
		},
	})
}

func nameOfRole(r access.Role) string { return r.Name }

func (r *run) makeEventType(i *item) error {
	i.Require("type", "description")
	name, c := i.EventType("type"), i.EventTypeChange()
	i.name = form.Or(name, "")
	return settle(r, i, object[webhook.EventType]{
		find: r.Store.CataloguedType, key: func(t webhook.EventType) string { return t.Type },
		compare: func(before webhook.EventType) {
			c.Description = compare(i, "description", c.Description, before.Description, "")
			c.Group = compare(i, "group", c.Group, before.Group, "")
			c.Example = (*[]byte)(compare(i, "example", (*json.RawMessage)(c.Example), before.Example, nil))
			c.Schema = (*[]byte)(compare(i, "schema", (*json.RawMessage)(c.Schema), before.Schema, nil))
		},
		create: func() (webhook.EventType, error) {
			made, err := r.Store.PutEventType(r.ctx, r.by, i.name, c)
			return made.Is, err
		},
	})
}

func (i *item) refuseBuiltIn() {
	i.Refuse("", "built_in", "The %s is built in and cannot be changed; remove it from the document.", i.kind)
}

func (r *run) makeMember(i *item) error {
	i.Require("organization", "user", "role")
	in := reference(r, i, "organization", r.Store.Organization, idOfOrganization)
	who, given := reference(r, i, "user", r.Store.User, idOfUser), reference(r, i, "role", r.Store.Role, nameOfRole)
	i.name = r.namePair(i, "organization", "user")
	return settle(r, i, object[access.Member]{
		pair: access.MemberKey(in.ID, who.ID),
		find: func(ctx context.Context, _ string) (access.Member, error) {
			members, err := r.Store.Members(ctx, in.ID, who.RowID+1, 1)
			if err != nil {
				return access.Member{}, err
			}
			if len(members) == 0 || members[0].UserID != who.ID {
				return access.Member{}, fault.Missing("member")
			}
			return members[0], nil
		},
		key: func(access.Member) string { return access.MemberKey(in.ID, who.ID) },
		compare: func(before access.Member) {
			compare(i, "role", &given.Name, before.Role, "")
		},
		create: func() (access.Member, error) { return r.Store.SetMember(r.ctx, r.by, in.ID, who.ID, given.Name) },
	})
}
