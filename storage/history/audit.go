package history

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// AuditPage lists the audit log of an organization, or of access.AllOrganizations, newest first. Faults: Unavailable if too many
// reads of the organization's logs are running.
func (h *History) AuditPage(ctx context.Context, organization int64, f access.AuditFilter) (page access.Page[access.AuditEvent], err error) {
	list := scan.List[access.AuditEvent]{
		Logs: h.o.Logs, Table: "audit_events a", Index: "audit_events_by_organization",
		Columns: `
			a.id, a.type, a.actor_type, a.actor_id, a.actor_name, a.target_type, a.target_id, a.ip, a.request_id, a.at, a.details,
			o.public_id AS organization_public_id, o.external_id AS organization_external_id, o.name AS organization_name`,
		Joins: "CROSS JOIN organizations o ON o.id = a.organization_id",
		Where: "(?5 = '' OR a.type = ?5) AND (?6 = '[]' OR a.actor_id IN (SELECT value FROM json_each(?6)) OR a.actor_type = 'system' AND 'system' IN (SELECT value FROM json_each(?6))) AND a.at >= ?7 AND a.at < ?8 AND (?9 = '[]' OR a.target_id IN (SELECT value FROM json_each(?9)))",
	}
	page, err = list.Page(ctx, scan.Query{
		Organization: organization, Before: f.Before, Limit: f.Limit,
		Filtered: f.Type != "" || len(f.Actors)+len(f.Targets) > 0 || f.Since != 0 || f.Until != 0,
		Args:     []any{f.Type, sqlite.TextList(f.Actors), f.Since, scan.UpperBound(f.Until), sqlite.TextList(f.Targets)},
	})
	for i, e := range page.Rows {
		page.Rows[i].ID = h.o.IDs.ID(access.AuditEventID, e.RowID, e.At)
	}
	return page, err
}

// AuditNames returns what a text may name in the audit log of an organization: a public id or the name of a plan, a role or a permission,
// or the public id of what has this external id. Everywhere says that the caller may read all organizations and users. Several
// organizations may use the same external id for their subscriptions and their API keys, so access.AllOrganizations finds none of these.
func (h *History) AuditNames(ctx context.Context, organization int64, text string, everywhere bool) ([]string, error) {
	names := []string{text}
	if access.LooksLikeID(text) {
		return names, nil
	}
	found, err := sqlite.All[string](h.o.Reads.In(ctx), `
		SELECT public_id FROM organizations WHERE external_id = ?1 AND (?3 OR id = ?2)
		UNION ALL SELECT public_id FROM users WHERE external_id = ?1 AND ?3
		UNION ALL SELECT public_id FROM api_keys INDEXED BY api_keys_by_external_id
		WHERE organization_id = ?2 AND external_id = ?1 AND external_id IS NOT NULL AND revoked_at IS NULL
		UNION ALL SELECT public_id FROM subscriptions INDEXED BY subscriptions_by_external_id
		WHERE external_id = ?1 AND external_id IS NOT NULL AND organization_id = ?2`, text, organization, everywhere)
	return append(names, found...), err
}

// AuditEvent returns one line of the audit log of an organization. Faults: NotFound; Unavailable if too many reads of the
// organization's logs are running.
func (h *History) AuditEvent(ctx context.Context, organization int64, id string) (access.AuditEvent, error) {
	row, _, ok := h.o.IDs.Row(access.AuditEventID, id)
	if !ok {
		return access.AuditEvent{}, fault.Missing("audit event")
	}
	page, err := h.AuditPage(ctx, organization, access.AuditFilter{Before: row + 1, Limit: 1})
	if err != nil {
		return access.AuditEvent{}, err
	}
	if len(page.Rows) == 0 || page.Rows[0].ID != id {
		return access.AuditEvent{}, fault.Missing("audit event")
	}
	return page.Rows[0], nil
}

// Applied lists the objects that `keyhook apply` has created and nobody has deleted since, the newest first.
func (h *History) Applied(ctx context.Context, before int64, limit int) ([]access.Applied, error) {
	return sqlite.All[access.Applied](h.o.Reads.In(ctx),
		"SELECT id, kind, key FROM applied WHERE id < ? ORDER BY id DESC LIMIT ?", scan.UpperBound(before), limit)
}

// AppliedObject returns one of the objects. Faults: NotFound.
func (h *History) AppliedObject(ctx context.Context, kind, key string) (access.Applied, error) {
	return sqlite.One[access.Applied](h.o.Reads.In(ctx), "applied object", "SELECT id, kind, key FROM applied WHERE kind = ? AND key = ?", kind, key)
}
