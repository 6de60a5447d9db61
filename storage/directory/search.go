package directory

import "github.com/keyhook/keyhook/storage/search"

// The lookups of a search. Each reads one index. Only operators may read most of these things, so their lookups do not look at
// the organization. The columns that a thing does not have are missing, and the fields of search.Found stay zero.
const (
	// FoundOwner are the columns of a search for the organization o that owns a thing.
	FoundOwner = "o.public_id AS organization_public_id, o.external_id AS organization_external_id, o.name AS organization_name"

	foundOrganization = `
		SELECT o.public_id, o.name AS title, p.name || iif(o.closed_at IS NULL, ' plan', ' plan, closed') AS detail,
		       ` + FoundOwner + `
		FROM organizations o CROSS JOIN plans p ON p.id = o.plan_id`
	foundUser = `
		SELECT u.public_id, u.name AS title,
		       coalesce(u.email, iif(u.service_of IS NULL, 'no e-mail address', 'service account'))
		           || CASE WHEN u.erased_at IS NOT NULL THEN ', erased' WHEN u.is_active THEN '' ELSE ', inactive' END AS detail,
		       ` + FoundOwner + `
		FROM users u LEFT JOIN organizations o ON o.id = u.service_of`
	foundKeyColumns = `
		SELECT k.public_id, k.name AS title, k.key_prefix AS detail, k.expires_at, k.revoked_at,
		       ` + FoundOwner
	foundKeyJoins = " CROSS JOIN organizations o ON o.id = k.organization_id"
	foundToken    = `
		SELECT a.public_id, u.public_id AS parent_id, iif(a.name = '', a.token_prefix, a.name) AS title,
		       a.token_prefix || ' of ' || u.name AS detail, a.expires_at, a.revoked_at,
		       ` + FoundOwner + `
		FROM access_tokens a CROSS JOIN users u ON u.id = a.user_id CROSS JOIN organizations o ON o.id = a.organization_id`
)

// SearchLookups are the lookups of everything that the directory owns.
var SearchLookups = []search.Lookup{
	{Type: search.Organization, By: search.ByID, SQL: foundOrganization + " WHERE o.public_id = ?1"},
	{Type: search.Organization, By: search.ByText, SQL: foundOrganization + " WHERE o.external_id = ?1"},
	{Type: search.Organization, By: search.ByStart,
		SQL: foundOrganization + " WHERE o.name COLLATE NOCASE >= ?1 AND o.name COLLATE NOCASE < ?2 ORDER BY o.name COLLATE NOCASE LIMIT ?4"},
	{Type: search.User, By: search.ByID, SQL: foundUser + " WHERE u.public_id = ?1 AND u.built_in = 0"},
	{Type: search.User, By: search.ByText, SQL: foundUser + " WHERE u.external_id = ?1"},
	{Type: search.User, By: search.ByStart,
		SQL: foundUser + ` WHERE u.name COLLATE NOCASE >= ?1 AND u.name COLLATE NOCASE < ?2 AND u.built_in = 0
			ORDER BY u.name COLLATE NOCASE LIMIT ?4`},
	{Type: search.User, By: search.ByStart,
		SQL: foundUser + " WHERE u.email >= ?1 AND u.email < ?2 AND u.built_in = 0 ORDER BY u.email LIMIT ?4"},
	{Type: search.APIKey, By: search.ByID,
		SQL: foundKeyColumns + " FROM api_keys k" + foundKeyJoins + " WHERE k.public_id = ?1 AND ?3 IN (0, k.organization_id)"},
	{Type: search.APIKey, By: search.ByText, Callers: search.Inside, // the index begins with the organization
		SQL: foundKeyColumns + " FROM api_keys k INDEXED BY api_keys_by_external_id" + foundKeyJoins + `
			WHERE k.organization_id = ?3 AND k.external_id = ?1 AND k.external_id IS NOT NULL AND k.revoked_at IS NULL`},
	{Type: search.APIKey, By: search.ByPrefix,
		SQL: foundKeyColumns + " FROM api_keys k INDEXED BY api_keys_by_prefix" + foundKeyJoins + `
			WHERE k.key_prefix = ?1 AND ?3 IN (0, k.organization_id) ORDER BY k.id DESC LIMIT ?4`},
	{Type: search.APIKey, By: search.ByStart, Callers: search.Everywhere,
		SQL: foundKeyColumns + " FROM api_keys k INDEXED BY api_keys_by_name" + foundKeyJoins + `
			WHERE k.name COLLATE NOCASE >= ?1 AND k.name COLLATE NOCASE < ?2 ORDER BY k.name COLLATE NOCASE LIMIT ?4`},
	{Type: search.APIKey, By: search.ByStart, Callers: search.Inside,
		SQL: foundKeyColumns + " FROM api_keys k INDEXED BY api_keys_by_name_in_organization" + foundKeyJoins + `
			WHERE k.organization_id = ?3 AND k.name COLLATE NOCASE >= ?1 AND k.name COLLATE NOCASE < ?2
			ORDER BY k.name COLLATE NOCASE LIMIT ?4`},
	{Type: search.AccessToken, By: search.ByID, SQL: foundToken + " WHERE a.public_id = ?1"},
	{Type: search.AccessToken, By: search.ByPrefix, SQL: foundToken + " WHERE a.token_prefix = ?1 ORDER BY a.id DESC LIMIT ?4"},
	// The ids of these are their names, which are in lower case.
	{Type: search.Plan, By: search.ByStart,
		SQL: `SELECT p.name AS public_id, p.name AS title,
			iif(p.api_keys, 'API keys, ', '') || iif(p.webhooks, 'webhooks, ', '') || coalesce(p.api_rate_limit_per_minute, 'unlimited') || ' requests a minute' AS detail
			FROM plans p WHERE p.name >= ?8 AND p.name < ?9 ORDER BY p.name LIMIT ?4`},
	{Type: search.Role, By: search.ByStart,
		SQL: `SELECT r.name AS public_id, r.name AS title, iif(r.built_in, 'built-in role', 'role') AS detail
			FROM roles r WHERE r.name >= ?8 AND r.name < ?9 ORDER BY r.name LIMIT ?4`},
	{Type: search.Permission, By: search.ByStart,
		SQL: `SELECT p.key AS public_id, p.key AS title, p.description AS detail
			FROM permissions p WHERE p.key >= ?8 AND p.key < ?9 ORDER BY p.key LIMIT ?4`},
}
