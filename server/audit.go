package server

import (
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

type auditBody struct {
	ID                     string          `json:"id"`
	Type                   string          `json:"type"`
	Actor                  auditActor      `json:"actor"`
	OrganizationID         string          `json:"organization_id"`
	OrganizationExternalID *string         `json:"organization_external_id"`
	OrganizationName       string          `json:"organization_name"`
	Target                 auditTarget     `json:"target"`
	IP                     *string         `json:"ip"`
	RequestID              *string         `json:"request_id"`
	At                     exchange.Time   `json:"at"`
	Details                json.RawMessage `json:"details"`
}

type auditActor struct {
	Type string  `json:"type"`
	ID   *string `json:"id"`
	Name string  `json:"name"`
}

type auditTarget struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

func newAuditBody(e access.AuditEvent) auditBody {
	return auditBody{
		ID: e.ID, Type: e.Type, Actor: auditActor{e.Actor.Type, access.NullIfEmpty(e.Actor.ID), e.Name},
		OrganizationID: e.OrganizationID, OrganizationExternalID: e.OrganizationExternalID, OrganizationName: e.OrganizationName,
		Target: auditTarget{e.TargetType, e.TargetID}, IP: access.NullIfEmpty(e.IP), RequestID: access.NullIfEmpty(e.RequestID),
		At: exchange.Time(e.At), Details: json.RawMessage(e.Details),
	}
}

func (h *handlers) listAudit(x *exchange.Exchange) error {
	filter, actor, target := readAuditFilter(&x.Query)
	organization := x.ListOrganization()
	list := func(ctx context.Context, before int64, limit int) (none access.Page[access.AuditEvent], err error) {
		filter.Before, filter.Limit = before, limit
		if filter.Actors, err = h.auditNames(x, organization, actor); err != nil {
			return none, err
		}
		if filter.Targets, err = h.auditNames(x, organization, target); err != nil {
			return none, err
		}
		return h.options.Store.AuditPage(ctx, organization, filter)
	}
	return exchange.SearchRows(x, list, newAuditBody, func(e access.AuditEvent) int64 { return e.RowID })
}

// auditNames returns everything that the text of a filter may name; nothing for an empty text.
func (h *handlers) auditNames(x *exchange.Exchange, organization int64, text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	return h.options.Store.AuditNames(x.Request.Context(), organization, text, x.Principal.Can(access.PlatformRead))
}

func (h *handlers) findAuditEvent(x *exchange.Exchange) (auditBody, error) {
	found, err := h.options.Store.AuditEvent(x.Request.Context(), x.Organization(), x.Path.Value("id"))
	return newAuditBody(found), err
}

// readAuditFilter reads the filters of the list. The store has to look up the actor and the target.
func readAuditFilter(q *form.Query) (f access.AuditFilter, actor, target string) {
	isActor := func(s string) bool {
		return access.UserID.MayName(s) || access.KeyID.Valid(s) || access.SessionID.Valid(s)
	}
	f.Type = q.Matching("type", "must be the type of an audit event", webhook.ValidType)
	actor = q.Matching("actor", "must be the id or the external id of a user or of an API key, the id of a portal session, or system", isActor)
	isTarget := func(s string) bool { return s != "" && utf8.RuneCountInString(s) <= access.MaxExternalID }
	target = q.Matching("target", "must be the id, the name or the external id of what was changed", isTarget)
	f.Since, f.Until = q.Period()
	return f, actor, target
}
