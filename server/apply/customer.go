package apply

import (
	"context"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

func idOfOrganization(o access.Organization) string { return o.ID }

func (r *run) makeOrganization(i *item) error {
	i.Require("external_id", "name", "plan")
	external, name := i.ExternalID("external_id"), i.Label("name")
	i.name = form.Or(external, "")
	plan := reference(r, i, "plan", r.Store.Plan, nameOfPlan)
	requireName(i, external)
	var c access.OrganizationChange
	return settle(r, i, object[access.Organization]{
		find: r.Store.Organization, key: idOfOrganization,
		compare: func(before access.Organization) {
			c.Name, c.Plan = compare(i, "name", name, before.Name, ""), compare(i, "plan", &plan.Name, before.Plan, "")
		},
		create: func() (access.Organization, error) {
			return r.Store.CreateOrganization(r.ctx, r.by, access.Organization{Name: *name, Plan: plan.Name, ExternalID: external})
		},
		update: func(before access.Organization) (access.Organization, error) {
			return r.Store.UpdateOrganization(r.ctx, r.by, before.ID, c)
		},
	})
}

func idOfUser(u access.User) string { return u.ID }

func (r *run) makeUser(i *item) error {
	i.Require("external_id", "name")
	external, name, email := i.ExternalID("external_id"), i.Label("name"), i.EmailOrNull("email")
	i.name = form.Or(external, "")
	requireName(i, external)
	var c access.UserChange
	return settle(r, i, object[access.User]{
		find: r.Store.User, key: idOfUser,
		compare: func(before access.User) {
			c.Name, c.Email = compare(i, "name", name, before.Name, ""), compare(i, "email", email, before.Email, "")
		},
		create: func() (access.User, error) {
			return r.Store.CreateUser(r.ctx, r.by, access.User{Name: *name, Email: form.Or(email, ""), ExternalID: external, IsActive: true})
		},
		update: func(before access.User) (access.User, error) { return r.Store.UpdateUser(r.ctx, r.by, before.ID, c) },
	})
}

// requireName refuses an empty external id, because it names the object.
func requireName(i *item, external *string) {
	if external != nil && *external == "" {
		i.Refuse("external_id", "blank", "This must not be empty.")
	}
}

func (r *run) namePair(i *item, first, second string) string {
	return form.Or(i.Line(first, access.MaxExternalID), "") + "/" + form.Or(i.Line(second, access.MaxExternalID), "")
}

func (r *run) makeSubscription(i *item) error {
	i.Require("organization", "external_id", "url")
	in := reference(r, i, "organization", r.Store.Organization, idOfOrganization)
	given, secret := i.Subscription(r.CheckURL, r.HeaderPrefix), i.Secret("secret")
	i.name = r.namePair(i, "organization", "external_id")
	requireName(i, given.ExternalID)
	var c webhook.SubscriptionChange
	by := r.by
	by.Organization = in.RowID
	return settle(r, i, object[webhook.Subscription]{
		pair: in.ID + "/" + form.Or(given.ExternalID, ""),
		key:  func(s webhook.Subscription) string { return s.ID },
		find: func(ctx context.Context, _ string) (found webhook.Subscription, err error) {
			id, err := r.Store.SubscriptionID(ctx, in.RowID, form.Or(given.ExternalID, ""))
			if err != nil {
				return found, err
			}
			return r.Store.Subscription(ctx, in.RowID, id)
		},
		compare: func(before webhook.Subscription) {
			c = compareSubscription(i, given, before)
			moves := c.Ordered != nil && *c.Ordered || c.AuditEvents != nil || c.EventTypes != nil // see costOfChange
			if n := before.PendingDeliveries; moves && n <= maxRows {                              // more are refused for this subscription alone
				r.moved += n
			}
		},
		create: func() (webhook.Subscription, error) {
			if secret.IsZero() && !r.dry {
				i.Refuse("secret", "missing", "A new subscription needs its secret, so that you can save the secret before the subscription exists.")
				return webhook.Subscription{}, i.Err()
			}
			c.Secret, c.ExternalID, c.AuditEvents = secret, given.ExternalID, new(form.Or(given.AuditEvents, false))
			made, _, err := r.Store.CreateSubscription(r.ctx, by, in.RowID, c)
			return made, err
		},
		update: func(before webhook.Subscription) (webhook.Subscription, error) {
			return r.Store.UpdateSubscription(r.ctx, by, in.RowID, before.ID, c)
		},
	})
}

func compareSubscription(i *item, given webhook.SubscriptionChange, before webhook.Subscription) (c webhook.SubscriptionChange) {
	c.URL = compare(i, "url", given.URL, before.URL, "")
	var types *[]string
	if given.EventTypes != nil {
		types = new(sorted(*given.EventTypes))
	}
	if compare(i, "event_types", types, sorted(before.EventTypes.Unique()), []string{}) != nil {
		c.EventTypes = new(form.Or(given.EventTypes, webhook.Types{}))
	}
	c.AuditEvents = compare(i, "audit_events", given.AuditEvents, before.AuditEvents, false)
	c.Description = compare(i, "description", given.Description, before.Description, "")
	c.RateLimitPerSecond = compare(i, "rate_limit_per_second", given.RateLimitPerSecond, before.RateLimitPerSecond, nil)
	c.Ordered = compare(i, "ordered", given.Ordered, before.Ordered, false)
	c.Filter = compare(i, "filter", given.Filter, before.Filter, nil)
	compareHeaders(i, &c, given.Headers, before)
	return c
}

// compareHeaders compares the names of the headers, because nobody sees their values. Another host gets the headers only with their values.
func compareHeaders(i *item, c *webhook.SubscriptionChange, given *[]webhook.Header, before webhook.Subscription) {
	var names *[]string
	if given != nil {
		names = new(sorted(exchange.Each(*given, func(h webhook.Header) string { return strings.ToLower(h.Name) })))
	}
	had := sorted(exchange.Each(before.HeaderNames, strings.ToLower))
	isOther := compare(i, "headers", names, had, []string{}) != nil
	if isOther || given != nil && c.URL != nil && webhook.Origin(*c.URL) != webhook.Origin(before.URL) {
		c.Headers = new(form.Or(given, []webhook.Header{}))
	}
}

func sorted(list []string) []string {
	list = append([]string{}, list...)
	slices.Sort(list)
	return list
}
