package directory

import (
	"cmp"
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

const planColumns = "id, name, api_keys, webhooks, api_rate_limit_per_minute, max_subscriptions, max_api_keys, max_stored_bytes_per_day, created_at, updated_at"

// Plans lists the plans, newest first.
func (d *Directory) Plans(ctx context.Context, before int64, limit int) ([]access.Plan, error) {
	return sqlite.All[access.Plan](d.reads.In(ctx),
		"SELECT "+planColumns+" FROM plans WHERE id < ? ORDER BY id DESC LIMIT ?", scan.UpperBound(before), limit)
}

// Plan returns the plan of that name. Faults: NotFound.
func (d *Directory) Plan(ctx context.Context, name string) (access.Plan, error) {
	return planNamed(d.reads.In(ctx), name)
}

func planNamed(from sqlite.Reader, name string) (access.Plan, error) {
	return sqlite.One[access.Plan](from, "plan", "SELECT "+planColumns+" FROM plans WHERE name = ?", name)
}

// CreatePlan creates a plan. Faults: Conflict if the name is taken.
func (d *Directory) CreatePlan(ctx context.Context, by access.Actor, p access.Plan) (access.Plan, error) {
	return sqlite.Returning(ctx, d.file, workFor(by.Organization), func(t *sqlite.Tx) (made access.Plan, err error) {
		if err := RefuseTaken(t, "plan", "name", "SELECT name FROM plans WHERE name = ?", p.Name); err != nil {
			return made, err
		}
		if made, err = insertPlan(t, p); err != nil {
			return made, err
		}
		return made, d.hooks.Audit(t, by, 0, access.PlanCreated, Target{Type: "plan", ID: p.Name}, map[string]any{
			"api_keys": p.APIKeys, "webhooks": p.Webhooks, "api_rate_limit_per_minute": p.RateLimitPerMinute,
			"max_subscriptions": p.MaxSubscriptions, "max_api_keys": p.MaxAPIKeys, "max_stored_bytes_per_day": p.MaxStoredBytes,
		})
	})
}

// UpdatePlan changes a plan. It applies from the next request and the next attempt of its organizations on. Faults: NotFound.
func (d *Directory) UpdatePlan(ctx context.Context, by access.Actor, name string, c access.PlanChange) (access.Plan, error) {
	return sqlite.Returning(ctx, d.file, urgentFor(by.Organization), func(t *sqlite.Tx) (changed access.Plan, err error) {
		before, err := planNamed(t, name)
		if err != nil {
			return changed, err
		}
		p := c.On(before)
		if err := t.ExecGet(&changed, `
			UPDATE plans SET api_keys = ?, webhooks = ?, api_rate_limit_per_minute = ?, max_subscriptions = ?, max_api_keys = ?,
				max_stored_bytes_per_day = ?, updated_at = ?
			WHERE id = ? RETURNING `+planColumns,
			p.APIKeys, p.Webhooks, p.RateLimitPerMinute, p.MaxSubscriptions, p.MaxAPIKeys, p.MaxStoredBytes, t.Now(), p.RowID); err != nil {
			return changed, err
		}
		d.OutdatePrincipals(t)
		d.quotas.Forget()
		if changed.Webhooks != before.Webhooks {
			d.hooks.WebhooksChanged(t)
		}
		details := map[string]any{}
		webhook.AddDetail(details, "api_keys", c.APIKeys)
		webhook.AddDetail(details, "webhooks", c.Webhooks)
		webhook.AddDetail(details, "api_rate_limit_per_minute", c.RateLimitPerMinute)
		webhook.AddDetail(details, "max_subscriptions", c.MaxSubscriptions)
		webhook.AddDetail(details, "max_api_keys", c.MaxAPIKeys)
		webhook.AddDetail(details, "max_stored_bytes_per_day", c.MaxStoredBytes)
		return changed, d.hooks.Audit(t, by, 0, access.PlanUpdated, Target{Type: "plan", ID: name}, details)
	})
}

// DeletePlan deletes a plan. Faults: NotFound; Conflict while an organization that is not closed has it.
func (d *Directory) DeletePlan(ctx context.Context, by access.Actor, name string) error {
	return d.file.Write(ctx, workFor(by.Organization), func(t *sqlite.Tx) error {
		plan, err := planNamed(t, name)
		inUse := errInUse("plan", "organizations have it; give them another plan first")
		if err := cmp.Or(err, sqlite.RefuseIf(t, inUse, "SELECT 1 FROM organizations WHERE plan_id = ? AND closed_at IS NULL", plan.RowID)); err != nil {
			return err
		}
		// A closed organization needs a plan, but no longer uses it. The open ones keep at least one other plan alive.
		const move = "UPDATE organizations SET plan_id = (SELECT min(id) FROM plans WHERE id != ?1) WHERE plan_id = ?1"
		if err := t.Exec(move, plan.RowID); err != nil {
			return err
		}
		if err := t.Exec("DELETE FROM plans WHERE id = ?", plan.RowID); err != nil {
			return err
		}
		return d.hooks.Audit(t, by, 0, access.PlanDeleted, Target{Type: "plan", ID: name}, nil)
	})
}

func insertPlan(t *sqlite.Tx, p access.Plan) (made access.Plan, err error) {
	err = t.ExecGet(&made, `
		INSERT INTO plans (name, api_keys, webhooks, api_rate_limit_per_minute, max_subscriptions, max_api_keys, max_stored_bytes_per_day, created_at, updated_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8) RETURNING `+planColumns,
		p.Name, p.APIKeys, p.Webhooks, p.RateLimitPerMinute, p.MaxSubscriptions, p.MaxAPIKeys, p.MaxStoredBytes, t.Now())
	return made, err
}
