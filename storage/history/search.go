package history

import (
	"context"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/search"
)

// Search finds things by their id, external id, prefix or idempotency key, and by the beginning of their name: those that by may
// read in its organization, or in all of them with platform:read. Deleted and revoked things are found too. Faults: Unavailable if
// too many reads of the organization's logs are running.
func (h *History) Search(ctx context.Context, by access.Principal, text string) ([]search.Found, error) {
	end, err := h.o.Logs.Take(ctx, by.Organization.RowID)
	if err != nil {
		return nil, err
	}
	defer end()
	return search.Run(ctx, h.o.Logs, searchLookups, search.Query{
		Text: text, Organization: by.Organization.RowID, Can: by.Can, HiddenTypes: HiddenTypes(!by.Can(access.AuditRead)), IDs: h.o.IDs,
	})
}

const (
	foundSubscriptionColumns = `
		SELECT s.public_id, coalesce(s.external_id, '') AS title, s.url,
		       CASE WHEN s.deleted_at IS NOT NULL THEN 'deleted' WHEN ` + delivery.PausedByPerson + ` THEN 'paused' ELSE s.status END AS detail, ` + directory.FoundOwner
	foundSubscriptionJoins = " CROSS JOIN organizations o ON o.id = s.organization_id"

	foundEventColumns = "SELECT e.id, e.created_at AS at, e.type AS title, " + directory.FoundOwner
	foundEventJoins   = " CROSS JOIN organizations o ON o.id = e.organization_id"

	// lastOrganization ends the range of organizations that begins with ?3, so that an index on the organization finds its row at once.
	lastOrganization = "iif(?3 = 0, 9223372036854775807, ?3)"
)

// describedColumns have the description as the title.
var describedColumns = strings.Replace(foundSubscriptionColumns, "coalesce(s.external_id, '')", "s.description", 1)

// searchLookups compare the text with a URL without its scheme, so that a host or a whole URL finds a subscription. Descriptions have no
// index: the text is compared with each of the organization in which the caller acts, but not with the deleted ones, whose number has no
// limit. They find attempts that have ended, and those in progress.
var searchLookups = slices.Concat(directory.SearchLookups, []search.Lookup{
	{Type: search.Subscription, By: search.ByID,
		SQL: foundSubscriptionColumns + " FROM subscriptions s" + foundSubscriptionJoins + `
			WHERE s.public_id = ?1 AND ?3 IN (0, s.organization_id)`},
	{Type: search.Subscription, By: search.ByText,
		SQL: foundSubscriptionColumns + " FROM subscriptions s INDEXED BY subscriptions_by_external_id" + foundSubscriptionJoins + `
			WHERE s.external_id = ?1 AND s.external_id IS NOT NULL AND s.organization_id >= ?3 AND s.organization_id <= ` + lastOrganization + ` LIMIT ?4`},
	{Type: search.Subscription, By: search.ByStart, Callers: search.Everywhere,
		SQL: foundSubscriptionColumns + " FROM subscriptions s INDEXED BY subscriptions_by_host" + foundSubscriptionJoins + `
			WHERE substr(s.url, instr(s.url, '//') + 2) >= ?8 AND substr(s.url, instr(s.url, '//') + 2) < ?9
			ORDER BY substr(s.url, instr(s.url, '//') + 2) LIMIT ?4`},
	{Type: search.Subscription, By: search.ByStart, Callers: search.Inside,
		SQL: foundSubscriptionColumns + " FROM subscriptions s INDEXED BY subscriptions_by_host_in_organization" + foundSubscriptionJoins + `
			WHERE s.organization_id = ?3 AND substr(s.url, instr(s.url, '//') + 2) >= ?8 AND substr(s.url, instr(s.url, '//') + 2) < ?9
			ORDER BY substr(s.url, instr(s.url, '//') + 2) LIMIT ?4`},
	{Type: search.Subscription, By: search.ByStart, Callers: search.Acting,
		SQL: describedColumns + " FROM subscriptions s INDEXED BY subscriptions_live" + foundSubscriptionJoins + `
			WHERE s.organization_id = ?3 AND s.deleted_at IS NULL AND instr(lower(s.description), lower(?1)) > 0 LIMIT ?4`},
	{Type: search.Event, By: search.ByID,
		SQL: foundEventColumns + " FROM events e" + foundEventJoins + `
			WHERE e.id = ?5 AND e.created_at = ?6 AND ?3 IN (0, e.organization_id) AND e.type NOT IN (SELECT value FROM json_each(?7))`},
	{Type: search.Event, By: search.ByText,
		SQL: foundEventColumns + " FROM events e INDEXED BY events_by_idempotency_key" + foundEventJoins + `
			WHERE e.idempotency_key = ?1 AND e.organization_id >= ?3 AND e.organization_id <= ` + lastOrganization + `
			  AND e.type NOT IN (SELECT value FROM json_each(?7)) LIMIT ?4`},
	{Type: search.Attempt, By: search.ByID,
		SQL: `
			SELECT a.id, a.attempted_at AS at, s.public_id AS parent_id, e.type || ' #' || a.attempt_number AS title, s.url,
			       CASE a.outcome WHEN ` + delivery.OutcomeSucceeded + ` THEN 'succeeded' WHEN ` + delivery.OutcomeFailed + ` THEN 'failed' ELSE 'interrupted' END
			           || coalesce(' with status ' || a.response_status, '') AS detail, ` + directory.FoundOwner + `
			FROM attempts a` + attemptJoins + ` JOIN organizations o ON o.id = s.organization_id
			WHERE a.id = ?5 AND a.attempted_at = ?6 AND ?3 IN (0, s.organization_id) AND e.type NOT IN (SELECT value FROM json_each(?7))`},
	{Type: search.Attempt, By: search.ByID,
		SQL: `
			SELECT ` + delivery.AttemptRow + ` AS id, d.due_at AS at, s.public_id AS parent_id, e.type || ' #' || (d.attempts + 1) AS title, s.url,
			       'sending' AS detail, ` + directory.FoundOwner + `
			FROM deliveries d` + sendingJoins + ` JOIN organizations o ON o.id = s.organization_id
			WHERE ` + delivery.Running("?5") + ` AND d.due_at = ?6 AND ?3 IN (0, s.organization_id) AND e.type NOT IN (SELECT value FROM json_each(?7))`},
	{Type: search.AuditEvent, By: search.ByID,
		SQL: `
			SELECT l.id, l.at, l.type AS title, 'by ' || l.actor_name AS detail, ` + directory.FoundOwner + `
			FROM audit_events l CROSS JOIN organizations o ON o.id = l.organization_id
			WHERE l.id = ?5 AND l.at = ?6 AND ?3 IN (0, l.organization_id)`},
})
