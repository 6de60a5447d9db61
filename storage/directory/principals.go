package directory

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// The size of each cache. To read a principal from the file takes about 20 µs.
const (
	principalShards  = 64 // a power of two
	principalsPerOne = 16_384 / principalShards
)

// principalCache keeps the principals of recent requests. It is exact: every write that could change a principal increments
// the generation after its commit and before it returns. Entries of another generation are not used. The zero value is empty.
// Each kind of credential has its own map, so one kind is never accepted as another.
type principalCache struct {
	generation atomic.Uint64
	keys       principals
	tokens     principals
	sessions   principals
	identities principals // by identityKey
	members    principals // by identityKey of the user's id, for sessions that switch
}

type principals [principalShards]struct {
	mu    sync.RWMutex
	known map[access.Digest]*knownPrincipal
}

// knownPrincipal is an entry of the cache. It is never changed.
type knownPrincipal struct {
	access.Principal
	generation uint64 // before the principal was read
}

// find returns nil if there is no entry of the generation.
func (c *principals) find(generation uint64, d access.Digest) *knownPrincipal {
	shard := &c[d[0]%principalShards]
	shard.mu.RLock()
	p := shard.known[d]
	shard.mu.RUnlock()
	if p == nil || p.generation != generation {
		return nil
	}
	return p
}

// keep stores p. If the shard is full, p replaces an arbitrary entry.
func (c *principals) keep(d access.Digest, p *knownPrincipal) {
	shard := &c[d[0]%principalShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.known == nil {
		shard.known = map[access.Digest]*knownPrincipal{}
	}
	if _, again := shard.known[d]; !again && len(shard.known) >= principalsPerOne {
		for other := range shard.known {
			delete(shard.known, other)
			break
		}
	}
	shard.known[d] = p
}

// outdatePrincipals makes every entry of the cache invalid once the transaction is committed.
func (d *Directory) outdatePrincipals(t *sqlite.Tx) {
	t.OnCommit(func() { d.principals.generation.Add(1) })
}

// PrincipalByKey returns the principal of an API key at this moment. It does not check Plan.APIKeys. Faults:
// Unauthenticated, with the code of the first check that fails: invalid_key, key_revoked, key_expired, creator_inactive. A
// failure to read the database is never one of these.
func (d *Directory) PrincipalByKey(ctx context.Context, digest access.Digest) (access.Principal, error) {
	generation := d.principals.generation.Load()
	p := d.principals.keys.find(generation, digest)
	if p == nil {
		var err error
		if p, err = d.readCredential(ctx, keyPrincipal, digest, refusedKey); err != nil {
			return access.Principal{}, err
		}
		p.generation = generation
		d.principals.keys.keep(digest, p)
	}
	if p.Key.ExpiresAt != nil && p.Key.Status(time.Now().UnixMilli()) == access.Expired {
		return access.Principal{}, refusedKey.expired()
	}
	return p.Principal, nil
}

// PrincipalByToken returns the principal of an access token at this moment. Faults:
// Unauthenticated, with the code of the first check that fails: invalid_key, token_revoked, token_expired,
// user_inactive. A failure to read the database is never one of these.
func (d *Directory) PrincipalByToken(ctx context.Context, digest access.Digest) (access.Principal, error) {
	generation := d.principals.generation.Load()
	p := d.principals.tokens.find(generation, digest)
	if p == nil {
		var err error
		if p, err = d.readCredential(ctx, tokenPrincipal, digest, refusedToken); err != nil {
			return access.Principal{}, err
		}
		p.generation = generation
		d.principals.tokens.keep(digest, p)
	}
	if p.Token.ExpiresAt != nil && p.Token.Status(time.Now().UnixMilli()) == access.Expired {
		return access.Principal{}, refusedToken.expired()
	}
	return p.Principal, nil
}

// principalRole selects the role r of a principal; its columns are empty if there is no role.
const principalRole = `
	coalesce(r.name, '') AS "role.name", coalesce(r.built_in, 0) AS "role.built_in", ` + listedPermissions + ` AS "role.permissions"`

// actingRole joins the role r of a user u: the role of membership m, or operator for the built-in user, who has no
// memberships.
const actingRole = `
	LEFT JOIN roles r ON r.id = CASE u.built_in WHEN 1 THEN (SELECT id FROM roles WHERE name = '` + access.RoleOperator + `') ELSE m.role_id END`

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
	r.id IS NOT NULL AS member,` + principalRole

	principalJoins = `
	JOIN users u ON u.id = c.user_id
	JOIN organizations o ON o.id = c.organization_id
	JOIN plans p ON p.id = o.plan_id
	LEFT JOIN memberships m ON m.organization_id = c.organization_id AND m.user_id = c.user_id AND o.closed_at IS NULL` + actingRole

	byDigest = " WHERE c.digest = ?"

	keyColumns = `
	SELECT c.id AS "key.id", c.public_id AS "key.public_id", o.public_id AS "key.organization_public_id", u.public_id AS "key.created_by",
	c.name AS "key.name", c.scope AS "key.scope", c.key_prefix AS "key.key_prefix", c.window_id AS "key.window_id",
	c.created_at AS "key.created_at", c.expires_at AS "key.expires_at", c.last_used_at AS "key.last_used_at", coalesce(c.revoked_at, o.closed_at) AS "key.revoked_at",
	c.metadata AS "key.metadata",` +
		principalColumns + ` FROM api_keys c` + principalJoins

	keyPrincipal     = keyColumns + byDigest
	keyPrincipalByID = keyColumns + " WHERE c.public_id = ?" // for KeyStateByID: an id does not authenticate

	tokenPrincipal = `
	SELECT c.id AS "token.id", c.public_id AS "token.public_id", u.public_id AS "token.user_public_id",
	o.public_id AS "token.organization_public_id", c.name AS "token.name", c.token_prefix AS "token.token_prefix",
	c.created_at AS "token.created_at", c.expires_at AS "token.expires_at", c.last_used_at AS "token.last_used_at", coalesce(c.revoked_at, o.closed_at) AS "token.revoked_at",` +
		principalColumns + ` FROM access_tokens c` + principalJoins + byDigest

	// The token t and the role l of a session or a sign-in link. The columns are empty if it has none.
	sessionColumns = `
	c.public_id AS "session.public_id", c.kind AS "session.kind", c.return_url AS "session.return_url", c.created_at AS "session.created_at", c.expires_at AS "session.expires_at",
	coalesce(t.id, 0) AS "token.id", coalesce(t.public_id, '') AS "token.public_id", u.public_id AS "token.user_public_id",
	o.public_id AS "token.organization_public_id", coalesce(t.name, '') AS "token.name", coalesce(t.token_prefix, '') AS "token.token_prefix",
	coalesce(t.created_at, 0) AS "token.created_at", t.expires_at AS "token.expires_at", t.last_used_at AS "token.last_used_at", coalesce(t.revoked_at, o.closed_at) AS "token.revoked_at",
	` + limitColumns + `,` + principalColumns

	// limitColumns select the role of a portal session c.
	limitColumns = `
	coalesce((SELECT r.name FROM roles r WHERE r.id = c.role_id), '') AS "limit.name",
	coalesce((SELECT r.built_in FROM roles r WHERE r.id = c.role_id), 0) AS "limit.built_in",
	coalesce((SELECT ` + listedPermissions + ` FROM roles r WHERE r.id = c.role_id), '') AS "limit.permissions"`

	sessionPrincipal = `SELECT c.id AS "session.id", c.link_id AS "session.link_id", c.may_switch AS "session.may_switch",` + sessionColumns + ` FROM sessions c` + sessionJoins
	linkPrincipal    = `SELECT 0 AS "session.id", c.public_id AS "session.link_id", 0 AS "session.may_switch",` + sessionColumns + ` FROM sign_in_links c` + sessionJoins

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

// readCredential is readPrincipal by a digest. The digest escapes to the heap here, and so a cached principal costs no
// allocation.
func (d *Directory) readCredential(ctx context.Context, statement string, digest access.Digest, refused refusals) (*knownPrincipal, error) {
	return d.readPrincipal(ctx, statement, refused, digest[:])
}

// readPrincipal reads a principal and checks its credential; see access.CredentialState.
func (d *Directory) readPrincipal(ctx context.Context, statement string, refused refusals, by ...any) (*knownPrincipal, error) {
	var row principalRow
	if err := d.get(ctx, &row, statement, by...); errors.Is(err, sql.ErrNoRows) {
		return nil, refused.invalid()
	} else if err != nil {
		return nil, err
	}
	state := row.state()
	if err := refused.forCheck(state.FailedCheck(time.Now().UnixMilli())); err != nil {
		return nil, err
	}
	return &knownPrincipal{Principal: state.Principal}, nil
}

// refusals are the words for a sort of credential in its refusals.
type refusals struct{ code, name, holder, holderCode string }

var (
	refusedKey   = refusals{"key", "API key", "The creator of this API key", "creator_inactive"}
	refusedToken = refusals{"token", "access token", "The user of this access token", "user_inactive"}
)

// invalid is the refusal of a malformed and of an unknown credential. It has the same code for all sorts of credentials.
func (r refusals) invalid() error {
	return fault.New(fault.Unauthenticated, "invalid_key", "This %s is not valid; check that it was copied in full.", r.name)
}

func (r refusals) revoked() error {
	return fault.New(fault.Unauthenticated, r.code+"_revoked", "This %s has been revoked; use another.", r.name)
}

func (r refusals) expired() error {
	return fault.New(fault.Unauthenticated, r.code+"_expired", "This %s has expired; use another.", r.name)
}

func (r refusals) inactive() error {
	return fault.New(fault.Unauthenticated, r.holderCode, "%s is not active, or not a member of the organization any more.", r.holder)
}

// PrincipalOfSystem returns the built-in operator in the oldest organization that is not closed. Requests over the local socket act
// as this principal. It is not cached: people type those requests.
func (d *Directory) PrincipalOfSystem(ctx context.Context) (access.Principal, error) {
	var row principalRow
	if err := d.get(ctx, &row, `
		SELECT`+principalColumns+`
		FROM users u
		JOIN organizations o ON o.id = (SELECT min(id) FROM organizations WHERE closed_at IS NULL)
		JOIN plans p ON p.id = o.plan_id
		LEFT JOIN memberships m ON m.organization_id = o.id AND m.user_id = u.id`+actingRole+`
		WHERE u.built_in = 1`); err != nil {
		return access.Principal{}, err
	}
	return access.Principal{
		User: row.User, Organization: row.Home, Home: row.Home, Plan: row.Plan, Permissions: effective(row.Role),
	}, nil
}
