package apply

import (
	"context"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// isPruned reports whether the request removes an object: apply has created it, and the document does not have it. All objects of earlier
// sections have been read when a later section refers to them.
func (r *run) isPruned(id string) bool {
	_, isNamed := r.named[id]
	return r.applied[id] && !isNamed
}

// countPruned returns how many objects the request removes.
func (r *run) countPruned() (n int) {
	for _, a := range r.list {
		if r.isPruned(identity(a.Kind, a.Key)) {
			n++
		}
	}
	return n
}

// countClosures returns the name of each organization that the request removes, and counts what would end with it, by id, beforehand.
func (r *run) countClosures() (map[string][]field, error) {
	counts := map[string][]field{}
	for _, a := range r.list {
		if a.Kind != access.KindOrganization || !r.isPruned(identity(a.Kind, a.Key)) {
			continue
		}
		c, err := r.Store.CountClosure(r.ctx, r.by, a.Key)
		if _, refused := fault.As(err); err != nil && !refused {
			return nil, err
		}
		ended := slices.DeleteFunc([]field{
			{"api_keys", c.APIKeys, nil}, {"access_tokens", c.AccessTokens, nil}, {"members", c.Members, nil},
			{"subscriptions", c.Subscriptions, nil}, {"pending_deliveries", c.PendingDeliveries, nil},
		}, func(f field) bool { return f.From == int64(0) })
		o, err := r.Store.Organization(r.ctx, a.Key)
		if err != nil {
			return nil, err
		}
		counts[a.Key] = slices.Insert(ended, 0, field{"name", o.Name, nil})
	}
	return counts, nil
}

// removeAll removes what apply has created and the document does not have: first the objects that refer to others.
func (r *run) removeAll(closures map[string][]field) error {
	for _, k := range slices.Backward(r.kinds()) {
		for _, a := range r.list {
			if a.Kind != k.name || !r.isPruned(identity(a.Kind, a.Key)) {
				continue
			}
			if len(r.changes) > MaxChanges {
				return nil
			}
			name, err := r.nameOf(a)
			if err != nil {
				return err
			}
			c := change{Action: "remove", Kind: a.Kind, Key: name, Fields: append([]field{}, closures[a.Key]...)}
			err, as := k.remove(r.ctx, r.by, a.Key), identity(c.Kind, c.Key)
			if len(c.Fields) > 0 { // an organization
				as = "close " + as
				if _, gone := r.Store.Organization(r.ctx, a.Key); fault.KindOf(gone) == fault.NotFound { // deleted, so nothing ends with it
					c.Fields, as = []field{}, identity(c.Kind, c.Key)
				}
			}
			if err == nil && r.shown != nil && !slices.ContainsFunc(r.shown, func(e form.Element) bool { return e.Text == as }) {
				err = fault.New(fault.Conflict, "not_in_removals", "Nobody was asked about this, because it has come meanwhile. Compare again.")
			}
			if refused, isFault := fault.As(err); isFault && isRefusal(refused.Kind) {
				err = fault.New(refused.Kind, refused.Code, "%s %s: %s To keep it, put it back into the document.", c.Kind, c.Key, refused.Message)
			}
			if err := r.note("prune", err); err != nil {
				return err
			}
			r.changes = append(r.changes, c)
		}
	}
	return nil
}

// nameOf returns the name of an object as a document would have it.
func (r *run) nameOf(a access.Applied) (string, error) {
	switch a.Kind {
	case access.KindOrganization:
		return r.nameOfOrganization(a.Key)
	case access.KindUser:
		return r.nameOfUser(a.Key)
	case access.KindMember:
		in, who, _ := strings.Cut(a.Key, "/")
		organization, err := r.nameOfOrganization(in)
		if err != nil {
			return "", err
		}
		user, err := r.nameOfUser(who)
		return organization + "/" + user, err
	case access.KindSubscription:
		in, err := r.organizationOf(a.Key)
		if err != nil {
			return "", err
		}
		sub, err := r.Store.Subscription(r.ctx, in.RowID, a.Key)
		return form.Or(in.ExternalID, in.ID) + "/" + form.Or(sub.ExternalID, sub.ID), err
	}
	return a.Key, nil
}

func (r *run) nameOfOrganization(id string) (string, error) {
	o, err := r.Store.Organization(r.ctx, id)
	return form.Or(o.ExternalID, id), err
}

func (r *run) nameOfUser(id string) (string, error) {
	u, err := r.Store.User(r.ctx, id)
	return form.Or(u.ExternalID, id), err
}

func (r *run) organizationOf(subscription string) (access.Organization, error) {
	id, err := r.Store.SubscriptionOrganization(r.ctx, subscription)
	if err != nil {
		return access.Organization{}, err
	}
	return r.Store.Organization(r.ctx, id)
}

func (r *run) removeMember(ctx context.Context, by access.Actor, key string) error {
	organization, user, _ := strings.Cut(key, "/")
	return r.Store.RemoveMember(ctx, by, organization, user)
}

// removeOrganization deletes an empty organization, and closes any other.
func (r *run) removeOrganization(ctx context.Context, by access.Actor, key string) error {
	err := r.Store.DeleteOrganization(ctx, by, key)
	if fault.KindOf(err) == fault.Conflict {
		_, err = r.Store.CloseOrganization(ctx, by, key)
	}
	return err
}

func (r *run) removeSubscription(ctx context.Context, by access.Actor, key string) error {
	in, err := r.organizationOf(key)
	if err != nil {
		return err
	}
	by.Organization = in.RowID
	return r.Store.DeleteSubscription(ctx, by, in.RowID, key)
}
