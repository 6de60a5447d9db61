package principal

import "github.com/keyhook/keyhook/storage/access"

// Each of these statements reads everything about the principal of a credential c. It is one statement, so that no write can
// come in between. The credentials of a closed organization count as revoked, and its memberships as ended.
const (
	principalColumns = `
	u.id AS "user.id", u.public_id AS "user.public_id", coalesce(u.email, '') AS "user.email", u.name AS "user.name",
	u.external_id AS "user.external_id", u.service_of AS "user.service_of", u.is_active AS "user.is_active", u.built_in AS "user.built_in", u.created_at AS "user.created_at", u.updated_at AS "user.updated_at",
	o.id AS "home.id", o.public_id AS "home.public_id", o.name AS "home.name", p.name AS "home.plan",
	o.external_id AS "home.external_id", o.created_at AS "home.created_at", o.updated_at AS "home.updated_at",
	p.id AS "plan.id", p.name AS "plan.name", p.api_keys AS "plan.api_keys", p.webhooks AS "plan.webhooks",
	p.api_rate_limit_per_minute AS "plan.api_rate_limit_per_minute",
	p.max_subscriptions AS "plan.max_subscriptions", p.max_api_keys AS "plan.max_api_keys",
	p.max_stored_bytes_per_day AS "plan.max_stored_bytes_per_day", p.created_at AS "plan.created_at", p.updated_at AS "plan.updated_at",
	r.id IS NOT NULL AS member,` + ActingRoleColumns

	principalJoins = `
	JOIN users u ON u.id = c.user_id
	JOIN organizations o ON o.id = c.organization_id
	JOIN plans p ON p.id = o.plan_id
	LEFT JOIN memberships m ON m.organization_id = c.organization_id AND m.user_id = c.user_id AND o.closed_at IS NULL` + JoinActingRole

	byDigest = " WHERE c.digest = ?"

	keyColumns = `
	SELECT c.id AS "key.id", c.public_id AS "key.public_id", o.id AS "key.organization_id", o.public_id AS "key.organization_public_id", u.public_id AS "key.created_by",
	c.name AS "key.name", c.scope AS "key.scope", c.key_prefix AS "key.key_prefix", c.window_id AS "key.window_id",
	c.created_at AS "key.created_at", c.expires_at AS "key.expires_at", c.last_used_at AS "key.last_used_at", coalesce(c.revoked_at, o.closed_at) AS "key.revoked_at",
	c.metadata AS "key.metadata", c.external_id AS "key.external_id", c.allowed_networks AS "key.allowed_networks",` +
		principalColumns + ` FROM api_keys c` + principalJoins

	keyPrincipal     = keyColumns + byDigest
	keyPrincipalByID = keyColumns + " WHERE c.public_id = ?" // for KeyStateByID: an id does not authenticate

	tokenPrincipal = `
	SELECT c.id AS "token.id", c.public_id AS "token.public_id", u.public_id AS "token.user_public_id",
	o.id AS "token.organization_id", o.public_id AS "token.organization_public_id", c.name AS "token.name", c.token_prefix AS "token.token_prefix",
	c.created_at AS "token.created_at", c.expires_at AS "token.expires_at", c.last_used_at AS "token.last_used_at", coalesce(c.revoked_at, o.closed_at) AS "token.revoked_at",` +
		principalColumns + ` FROM access_tokens c` + principalJoins + byDigest

	// The token t and the role l of a session or a sign-in link. The columns are empty if it has none.
	sessionColumns = `
	c.public_id AS "session.public_id", c.kind AS "session.kind", c.return_url AS "session.return_url", c.created_at AS "session.created_at", c.expires_at AS "session.expires_at",
	coalesce(t.id, 0) AS "token.id", coalesce(t.public_id, '') AS "token.public_id", u.public_id AS "token.user_public_id",
	o.id AS "token.organization_id", o.public_id AS "token.organization_public_id", coalesce(t.name, '') AS "token.name", coalesce(t.token_prefix, '') AS "token.token_prefix",
	coalesce(t.created_at, 0) AS "token.created_at", t.expires_at AS "token.expires_at", t.last_used_at AS "token.last_used_at", coalesce(t.revoked_at, o.closed_at) AS "token.revoked_at",
	` + limitColumns + `,` + principalColumns

	// limitColumns select the role of a portal session c.
	limitColumns = `
	coalesce((SELECT r.name FROM roles r WHERE r.id = c.role_id), '') AS "limit.name",
	coalesce((SELECT r.built_in FROM roles r WHERE r.id = c.role_id), 0) AS "limit.built_in",
	coalesce((SELECT ` + ListedPermissions + ` FROM roles r WHERE r.id = c.role_id), '') AS "limit.permissions"`

	sessionPrincipal = `SELECT c.id AS "session.id", c.link_id AS "session.link_id", c.may_switch AS "session.may_switch",` + sessionColumns + ` FROM sessions c` + sessionJoins
	linkPrincipal    = `SELECT 0 AS "session.id", c.public_id AS "session.link_id", 0 AS "session.may_switch",` + sessionColumns + ` FROM sign_in_links c` + sessionJoins

	memberPrincipal = `SELECT` + principalColumns + ` FROM memberships c` + principalJoins + ` WHERE c.user_id = ? AND c.organization_id = ?`

	sessionJoins = principalJoins + ` LEFT JOIN access_tokens t ON t.id = c.token_id` + byDigest
)

// principalRow is a row of these statements. Key, Token and Session are nil for other sorts of credentials.
type principalRow struct {
	Key     *access.Key         `db:"key"`
	Token   *access.AccessToken `db:"token"`
	Session *access.Session     `db:"session"`
	Limit   access.Role         `db:"limit"` // of a portal session
	User    access.User         `db:"user"`
	Home    access.Organization `db:"home"`
	Plan    access.Plan         `db:"plan"`
	Member  bool                `db:"member"`
	Role    access.Role         `db:"role"`
}
