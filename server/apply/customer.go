package apply

import (
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

func (r *run) makeOrganization(i *item) error {
	i.Require("external_id", "name", "plan")
	external, name := i.ExternalID("external_id"), i.Label("name")
	i.name = valueOf(external)
	plan, err := reference(r, i, "plan", r.Store.Plan, func(p access.Plan) string { return p.Name })
	if err != nil {
		return err
	}
	if err := r.checkName(i, external); err != nil || i.skipped {
		return err
	}
	before, err := r.Store.Organization(r.ctx, i.name)
	if err := present(i, err); err != nil {
		return err
	}
	key := before.ID
	if i.isNew {
		key = "new " + i.name
	}
	if err := r.identify(i, access.KindOrganization, key); err != nil {
		return err
	}
	c := access.OrganizationChange{Name: compare(i, "name", name, before.Name, ""), Plan: compare(i, "plan", &plan.Name, before.Plan, "")}
	if r.looks || i.isSame() {
		return nil
	}
	if !i.isNew {
		_, err = r.Store.UpdateOrganization(r.ctx, r.by, before.ID, c)
		return err
	}
	made, err := r.Store.CreateOrganization(r.ctx, r.by, access.Organization{Name: *name, Plan: plan.Name, ExternalID: external})
	r.named[identity(access.KindOrganization, made.ID)] = i.path
	return err
}

func (r *run) makeUser(i *item) error {
	i.Require("external_id", "name", "email")
	external, name, email := i.ExternalID("external_id"), i.Label("name"), i.Email("email")
	i.name = valueOf(external)
	if err := r.checkName(i, external); err != nil {
		return err
	}
	before, err := r.Store.User(r.ctx, i.name)
	if err := present(i, err); err != nil {
		return err
	}
	key := before.ID
	if i.isNew {
		key = "new " + i.name
	}
	if err := r.identify(i, access.KindUser, key); err != nil {
		return err
	}
	c := access.UserChange{Name: compare(i, "name", name, before.Name, ""), Email: compare(i, "email", email, before.Email, "")}
	if r.looks || i.isSame() {
		return nil
	}
	if !i.isNew {
		_, err = r.Store.UpdateUser(r.ctx, r.by, before.ID, c)
		return err
	}
	made, err := r.Store.CreateUser(r.ctx, r.by, access.User{Name: *name, Email: *email, ExternalID: external, IsActive: true})
	r.named[identity(access.KindUser, made.ID)] = i.path
	return err
}

// checkName returns the problems of an item. Its external id must not be empty, because it names the object.
func (r *run) checkName(i *item, external *string) error {
	if external != nil && *external == "" {
		i.Refuse("external_id", "blank", "This must not be empty.")
	}
	return i.Err()
}

// namePair returns the name of an object that has no name of its own.
func (r *run) namePair(i *item, first, second string) string {
	return valueOf(i.Line(first, access.MaxExternalID)) + "/" + valueOf(i.Line(second, access.MaxExternalID))
}

func (r *run) makeSubscription(i *item) error {
	i.Require("organization", "external_id", "url")
	in, err := reference(r, i, "organization", r.Store.Organization, func(o access.Organization) string { return o.ID })
	if err != nil {
		return err
	}
	given, secret := i.Subscription(r.CheckURL, r.HeaderPrefix), i.Secret("secret")
	i.name = r.namePair(i, "organization", "external_id")
	if err := r.checkName(i, given.ExternalID); err != nil || i.skipped {
		return err
	}
	var before webhook.Subscription
	id, err := r.Store.SubscriptionID(r.ctx, in.RowID, *given.ExternalID)
	if err := present(i, err); err != nil {
		return err
	}
	key := id
	if i.isNew {
		key = "new " + in.ID + "/" + *given.ExternalID
	} else if before, err = r.Store.Subscription(r.ctx, in.RowID, id); err != nil {
		return err
	}
	if err := r.identify(i, access.KindSubscription, key); err != nil {
		return err
	}
	c := compareSubscription(i, given, before)
	by := r.by
	by.Organization = in.RowID
	switch {
	case r.looks || i.isSame():
		return nil
	case i.isNew:
		if secret.IsZero() && !r.dry {
			i.Refuse("secret", "missing", "A new subscription needs its secret, so that you can save the secret before the subscription exists.")
			return i.Err()
		}
		c.Secret, c.ExternalID, c.AuditEvents = secret, given.ExternalID, new(valueOf(given.AuditEvents))
		_, _, err = r.Store.CreateSubscription(r.ctx, by, in.RowID, c)
	default:
		_, err = r.Store.UpdateSubscription(r.ctx, by, in.RowID, id, c)
	}
	return err
}

// compareSubscription returns what a subscription gets.
func compareSubscription(i *item, given webhook.SubscriptionChange, before webhook.Subscription) (c webhook.SubscriptionChange) {
	c.URL = compare(i, "url", given.URL, before.URL, "")
	var types *[]string
	if given.EventTypes != nil {
		types = new(sorted(*given.EventTypes))
	}
	if types = compare(i, "event_types", types, sorted(before.EventTypes.Unique()), []string{}); types != nil {
		c.EventTypes = new(webhook.Types(*types))
		if given.EventTypes != nil {
			c.EventTypes = given.EventTypes
		}
	}
	c.AuditEvents = compare(i, "audit_events", given.AuditEvents, before.AuditEvents, false)
	c.Description = compare(i, "description", given.Description, before.Description, "")
	c.SetRateLimit, c.RateLimitPerSecond = compareLimit(i, "rate_limit_per_second", given.SetRateLimit, given.RateLimitPerSecond, before.RateLimitPerSecond)
	c.Ordered = compare(i, "ordered", given.Ordered, before.Ordered, false)
	compareHeaders(i, &c, given.Headers, before)
	return c
}

// compareHeaders compares the names of the headers, because nobody sees their values. Another host gets the headers only with their
// values.
func compareHeaders(i *item, c *webhook.SubscriptionChange, given *[]webhook.Header, before webhook.Subscription) {
	var names *[]string
	if given != nil {
		names = new([]string{})
		for _, h := range *given {
			*names = append(*names, strings.ToLower(h.Name))
		}
		slices.Sort(*names)
	}
	had := []string{}
	for _, name := range before.HeaderNames {
		had = append(had, strings.ToLower(name))
	}
	slices.Sort(had)
	isOther := compare(i, "headers", names, had, []string{}) != nil
	switch {
	case isOther && given == nil:
		c.Headers = &[]webhook.Header{}
	case isOther, given != nil && c.URL != nil && webhook.Origin(*c.URL) != webhook.Origin(before.URL):
		c.Headers = given
	}
}

func sorted(list []string) []string {
	list = append([]string{}, list...)
	slices.Sort(list)
	return list
}
