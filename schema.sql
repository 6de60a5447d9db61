-- The whole schema of a Keyhook database. Every start compares the schema of the file with this text. A released schema never changes:
-- a numbered step leads to the next one, see "Change the schema" in .github/CONTRIBUTING.md.
--
-- Rows have integer keys. Public ids are stored as text if requests look them up; for the append-only tables (events,
-- attempts, audit_events) they are computed. Times are integers: milliseconds since the Unix epoch, UTC. No statement
-- reads a clock or makes a random number.

-- Facts about this instance by name: the salt of its public ids, the canary of its encryption key, the state of its clock.
CREATE TABLE instance (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- ---------------------------------------------------------------------------------------------------- keys and permissions

CREATE TABLE plans (
    id                        INTEGER PRIMARY KEY,
    name                      TEXT    NOT NULL UNIQUE,
    api_keys                  INTEGER NOT NULL CHECK (api_keys IN (0, 1)),
    webhooks                  INTEGER NOT NULL CHECK (webhooks IN (0, 1)),
    api_rate_limit_per_minute INTEGER CHECK (api_rate_limit_per_minute >= 0), -- NULL is unlimited
    max_subscriptions         INTEGER CHECK (max_subscriptions BETWEEN 0 AND 5000), -- NULL is 5000
    max_api_keys              INTEGER CHECK (max_api_keys BETWEEN 0 AND 10000), -- live keys; NULL is 10000
    max_stored_bytes_per_day  INTEGER CHECK (max_stored_bytes_per_day >= 0), -- NULL is no limit
    created_at                INTEGER NOT NULL,
    updated_at                INTEGER NOT NULL
) STRICT;

CREATE TABLE permissions (
    id          INTEGER PRIMARY KEY,
    key         TEXT    NOT NULL UNIQUE,
    description TEXT    NOT NULL,
    built_in    INTEGER NOT NULL CHECK (built_in IN (0, 1)),
    internal    INTEGER NOT NULL CHECK (internal IN (0, 1)), -- 1: no built-in role grants it, except operator
    created_at  INTEGER NOT NULL
) STRICT;

-- The permissions of built-in roles are computed from the list of permissions, so they have no rows in role_permissions.
CREATE TABLE roles (
    id         INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    built_in   INTEGER NOT NULL CHECK (built_in IN (0, 1)),
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE role_permissions (
    role_id       INTEGER NOT NULL REFERENCES roles (id) ON DELETE CASCADE,
    permission_id INTEGER NOT NULL REFERENCES permissions (id),
    PRIMARY KEY (role_id, permission_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX role_permissions_by_permission ON role_permissions (permission_id);

CREATE TABLE organizations (
    id          INTEGER PRIMARY KEY,
    public_id   TEXT    NOT NULL UNIQUE,
    name        TEXT    NOT NULL,
    plan_id     INTEGER NOT NULL REFERENCES plans (id),
    external_id TEXT UNIQUE,
    closed_at   INTEGER, -- since when the organization is closed
    cleaned_at  INTEGER, -- when the last data of the closed organization was removed
    expired_event INTEGER, -- the newest of its events that retention has deleted; NULL: none
    last_event_at INTEGER, -- when it last published an event, to the second; NULL: never
    told_expiry_at INTEGER, -- when an alert has told the operator of credentials that expire
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT;

CREATE INDEX organizations_by_name ON organizations (name COLLATE NOCASE);
CREATE INDEX organizations_by_plan ON organizations (plan_id);
CREATE INDEX organizations_to_clean ON organizations (id) WHERE closed_at IS NOT NULL AND cleaned_at IS NULL;

-- The usage of each organization in a UTC day. The plan limits stored_bytes.
CREATE TABLE organization_days (
    organization_id INTEGER NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    day             INTEGER NOT NULL, -- days since the epoch, by the wall clock
    stored_bytes    INTEGER NOT NULL, -- an estimate of what it has added to this file
    events          INTEGER NOT NULL, -- that it has published
    succeeded       INTEGER NOT NULL, -- deliveries, without tests
    failed          INTEGER NOT NULL, -- deliveries that were given up after their last attempt
    PRIMARY KEY (organization_id, day)
) STRICT, WITHOUT ROWID;

CREATE INDEX organization_days_by_day ON organization_days (day);

CREATE TABLE users (
    id          INTEGER PRIMARY KEY,
    public_id   TEXT    NOT NULL UNIQUE,
    email       TEXT COLLATE NOCASE UNIQUE,
    name        TEXT    NOT NULL,
    external_id TEXT UNIQUE,
    service_of  INTEGER UNIQUE REFERENCES organizations (id), -- the organization whose service account this is
    is_active   INTEGER NOT NULL CHECK (is_active IN (0, 1)),
    built_in    INTEGER NOT NULL CHECK (built_in IN (0, 1)), -- 1: the operator behind the local socket
    erased_at   INTEGER, -- since when the user is erased
    cleaned_at  INTEGER, -- when the last copy of the erased user's personal data was removed
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT;

CREATE INDEX users_by_name ON users (name COLLATE NOCASE);
CREATE UNIQUE INDEX users_built_in ON users (built_in) WHERE built_in = 1;
CREATE INDEX users_to_clean ON users (id) WHERE erased_at IS NOT NULL AND cleaned_at IS NULL;

CREATE TABLE memberships (
    organization_id INTEGER NOT NULL REFERENCES organizations (id),
    user_id         INTEGER NOT NULL REFERENCES users (id),
    role_id         INTEGER NOT NULL REFERENCES roles (id),
    created_at      INTEGER NOT NULL,
    PRIMARY KEY (organization_id, user_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX memberships_by_user ON memberships (user_id);
CREATE INDEX memberships_by_role ON memberships (role_id);

CREATE TABLE access_tokens (
    id              INTEGER PRIMARY KEY,
    public_id       TEXT    NOT NULL UNIQUE,
    user_id         INTEGER NOT NULL REFERENCES users (id),
    organization_id INTEGER NOT NULL REFERENCES organizations (id),
    name            TEXT    NOT NULL,
    digest          BLOB    NOT NULL UNIQUE CHECK (length(digest) = 32), -- SHA-256 of the token
    token_prefix    TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    expires_at      INTEGER,
    last_used_at    INTEGER,
    revoked_at      INTEGER,
    expiry_notice   INTEGER, -- the last notice of its end, in milliseconds before the end
    noticed_at      INTEGER, -- when that notice began
    told_noticed_at INTEGER, -- the noticed_at of which an alert has told the operator
    leaked_at       INTEGER  -- when it was reported as leaked, until an alert has told the operator
) STRICT;

CREATE INDEX access_tokens_by_expiry ON access_tokens (expires_at) WHERE revoked_at IS NULL;
CREATE INDEX access_tokens_untold ON access_tokens (organization_id) WHERE noticed_at IS NOT told_noticed_at AND revoked_at IS NULL;
CREATE INDEX access_tokens_leaked ON access_tokens (organization_id) WHERE leaked_at IS NOT NULL;
CREATE INDEX access_tokens_by_user ON access_tokens (user_id);
CREATE INDEX access_tokens_by_organization ON access_tokens (organization_id);
CREATE INDEX access_tokens_by_prefix ON access_tokens (token_prefix);

-- Links that sign a browser in. A link works once: the transaction that starts its session deletes it.
CREATE TABLE sign_in_links (
    id              INTEGER PRIMARY KEY,
    public_id       TEXT    NOT NULL UNIQUE,
    kind            TEXT    NOT NULL CHECK (kind IN ('sign_in_link', 'portal')), -- of the session that it starts
    user_id         INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    organization_id INTEGER NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    token_id        INTEGER REFERENCES access_tokens (id), -- the session acts as this token, and ends with it
    role_id         INTEGER REFERENCES roles (id) ON DELETE CASCADE CHECK (role_id IS NOT NULL OR kind <> 'portal'),
    return_url      TEXT, -- where a portal leads back to
    digest          BLOB    NOT NULL UNIQUE CHECK (length(digest) = 32), -- SHA-256 of the link's secret
    created_at      INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL
) STRICT;

CREATE INDEX sign_in_links_by_expiry ON sign_in_links (expires_at);
CREATE INDEX sign_in_links_by_user ON sign_in_links (user_id);
CREATE INDEX sign_in_links_by_organization ON sign_in_links (organization_id);
CREATE INDEX sign_in_links_by_token ON sign_in_links (token_id) WHERE token_id IS NOT NULL;
CREATE INDEX sign_in_links_by_role ON sign_in_links (role_id) WHERE role_id IS NOT NULL;

-- Sessions of browsers. A session of an access token can do what the token can do, and ends with it. A portal session can do
-- what both its user and its role can do, and ends with the role. A session of the identity provider can do what its user can do.
CREATE TABLE sessions (
    id              INTEGER PRIMARY KEY,
    public_id       TEXT    NOT NULL UNIQUE,
    kind            TEXT    NOT NULL CHECK (kind IN ('token', 'sign_in_link', 'portal', 'oidc')),
    user_id         INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    organization_id INTEGER NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    may_switch      INTEGER NOT NULL CHECK (may_switch IN (0, kind = 'oidc')), -- whether it may act in the user's other organizations
    token_id        INTEGER REFERENCES access_tokens (id),
    role_id         INTEGER REFERENCES roles (id) ON DELETE CASCADE CHECK (role_id IS NOT NULL OR kind <> 'portal'),
    return_url      TEXT, -- where a portal leads back to
    link_id         TEXT, -- public id of the link that started it
    digest          BLOB    NOT NULL UNIQUE CHECK (length(digest) = 32), -- SHA-256 of the cookie's value
    created_at      INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL
) STRICT;

CREATE INDEX sessions_by_expiry ON sessions (expires_at);
CREATE INDEX sessions_by_user ON sessions (user_id);
CREATE INDEX sessions_by_organization ON sessions (organization_id);
CREATE INDEX sessions_by_role ON sessions (role_id) WHERE role_id IS NOT NULL;

CREATE TABLE api_keys (
    id              INTEGER PRIMARY KEY,
    public_id       TEXT    NOT NULL UNIQUE,
    organization_id INTEGER NOT NULL REFERENCES organizations (id),
    user_id         INTEGER NOT NULL REFERENCES users (id), -- the creator; the key acts as this user
    name            TEXT    NOT NULL,
    scope           TEXT    NOT NULL, -- permission keys, separated by spaces; never changes
    digest          BLOB    NOT NULL UNIQUE CHECK (length(digest) = 32), -- SHA-256 of the key
    key_prefix      TEXT    NOT NULL,
    window_id       INTEGER NOT NULL, -- the rate window: the id of the first key in a chain of rotations
    created_at      INTEGER NOT NULL,
    expires_at      INTEGER,
    last_used_at    INTEGER,
    revoked_at      INTEGER,
    replaces        INTEGER UNIQUE REFERENCES api_keys (id), -- the key that this key replaced in a rotation
    metadata        TEXT    NOT NULL, -- a JSON object of the organization's own; never changes
    external_id     TEXT, -- the organization's own id; a rotation moves it to the new key
    allowed_networks TEXT   NOT NULL, -- from which it may be used, separated by spaces; empty is everywhere; never changes
    expiry_notice   INTEGER, -- the last notice of its end, in milliseconds before the end
    noticed_at      INTEGER, -- when that notice began
    told_noticed_at INTEGER, -- the noticed_at of which an alert has told the operator
    leaked_at       INTEGER  -- when it was reported as leaked, until an alert has told the operator
) STRICT;

CREATE UNIQUE INDEX api_keys_by_external_id ON api_keys (organization_id, external_id) WHERE external_id IS NOT NULL AND revoked_at IS NULL;
CREATE INDEX api_keys_by_expiry ON api_keys (expires_at) WHERE revoked_at IS NULL;
CREATE INDEX api_keys_untold ON api_keys (organization_id) WHERE noticed_at IS NOT told_noticed_at AND revoked_at IS NULL;
CREATE INDEX api_keys_leaked ON api_keys (organization_id) WHERE leaked_at IS NOT NULL;
CREATE INDEX api_keys_by_organization ON api_keys (organization_id);
CREATE INDEX api_keys_live ON api_keys (organization_id, expires_at) WHERE revoked_at IS NULL;
CREATE INDEX api_keys_by_user ON api_keys (user_id);
CREATE INDEX api_keys_by_prefix ON api_keys (key_prefix);
CREATE INDEX api_keys_by_name ON api_keys (name COLLATE NOCASE);
CREATE INDEX api_keys_by_name_in_organization ON api_keys (organization_id, name COLLATE NOCASE);

-- The requests of each API key in a UTC day, by what the checks decided. They are written together with last_used_at.
CREATE TABLE key_days (
    key_id       INTEGER NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    day          INTEGER NOT NULL, -- days since the epoch, by the wall clock
    allowed      INTEGER NOT NULL,
    rate_limited INTEGER NOT NULL,
    forbidden    INTEGER NOT NULL,
    PRIMARY KEY (key_id, day)
) STRICT, WITHOUT ROWID;

CREATE INDEX key_days_by_day ON key_days (day);

CREATE TABLE audit_events (
    id              INTEGER PRIMARY KEY,
    organization_id INTEGER NOT NULL REFERENCES organizations (id),
    type            TEXT    NOT NULL,
    actor_type      TEXT    NOT NULL,
    actor_id        TEXT    NOT NULL,
    actor_name      TEXT    NOT NULL,
    target_type     TEXT    NOT NULL,
    target_id       TEXT    NOT NULL,
    ip              TEXT    NOT NULL,
    request_id      TEXT    NOT NULL,
    at              INTEGER NOT NULL,
    details         TEXT    NOT NULL -- a JSON object
) STRICT;

CREATE INDEX audit_events_by_organization ON audit_events (organization_id);

-- What `keyhook apply` has created. A row ends with its object, so a later object of the same name is never taken for it.
CREATE TABLE applied (
    id   INTEGER PRIMARY KEY,
    kind TEXT NOT NULL, -- plan, permission, role, event_type, organization, user, member or subscription
    key  TEXT NOT NULL, -- name, key, type or public id; of a member: the ids of organization and user, with a slash between them
    UNIQUE (kind, key)
) STRICT;

-- ------------------------------------------------------------------------------------------------ events and delivery

CREATE TABLE subscriptions (
    id                    INTEGER PRIMARY KEY,
    public_id             TEXT    NOT NULL UNIQUE,
    organization_id       INTEGER NOT NULL REFERENCES organizations (id),
    url                   TEXT    NOT NULL, -- empty: a feed, which gets no deliveries and is read
    url_at                INTEGER NOT NULL, -- since when it has this URL
    event_types           TEXT    NOT NULL, -- as the owner wrote them, separated by spaces; empty means every type
    audit_events          INTEGER NOT NULL CHECK (audit_events IN (0, 1)), -- 1: receives audit events of these types too
    description           TEXT    NOT NULL,
    status                TEXT    NOT NULL CHECK (status IN ('healthy', 'failing', 'disabled')),
    consecutive_failures  INTEGER NOT NULL,
    last_error            TEXT    NOT NULL CHECK (last_error <> '' OR status = 'healthy'),
    epoch                 INTEGER NOT NULL, -- grows with every change of status, URL or secret
    failing_since         INTEGER NOT NULL, -- the first failure since the last success; 0 if there is none
    probe_at              INTEGER NOT NULL, -- the time of the next probe, while failing, or disabled and probed
    recover_since         INTEGER, -- a probe brought it back: send again what ended exhausted since then
    paused                INTEGER NOT NULL CHECK (paused = 0 OR paused = 1 AND status = 'disabled'), -- 1: disabled by hand
    rate_limit_per_second INTEGER CHECK (rate_limit_per_second BETWEEN 1 AND 10000), -- attempts; NULL is no limit
    ordered               INTEGER NOT NULL CHECK (ordered IN (0, 1)), -- 1: one delivery at a time, in the order of publication
    filter                TEXT,    -- conditions on the data of events, as JSON; NULL: every event passes
    filter_changed_at     INTEGER, -- NULL: never
    secret                BLOB    NOT NULL, -- sealed
    previous_secret       BLOB,             -- sealed; also signs until previous_until
    previous_until        INTEGER NOT NULL,
    birth                 INTEGER NOT NULL, -- the event about its creation; only later events can be missed
    created_at            INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL,
    disabled_at           INTEGER,
    told_disabled_at      INTEGER, -- the disabled_at of which an alert has told the operator
    told_failing_since    INTEGER, -- the same of failing_since
    last_success_at       INTEGER,
    last_failure_at       INTEGER,
    deleted_at            INTEGER,
    external_id           TEXT CHECK (external_id IS NULL OR deleted_at IS NULL) -- the organization's own; a removal frees it
) STRICT;

CREATE INDEX subscriptions_by_organization ON subscriptions (organization_id);
CREATE INDEX subscriptions_by_overlap ON subscriptions (previous_until) WHERE previous_secret IS NOT NULL;
CREATE INDEX subscriptions_to_recover ON subscriptions (id) WHERE recover_since IS NOT NULL;
CREATE INDEX subscriptions_untold ON subscriptions (id)
    WHERE iif(paused, NULL, disabled_at) IS NOT told_disabled_at AND deleted_at IS NULL;
CREATE INDEX subscriptions_untold_failing ON subscriptions (failing_since)
    WHERE status = 'failing' AND failing_since IS NOT told_failing_since AND deleted_at IS NULL;
CREATE UNIQUE INDEX subscriptions_by_external_id ON subscriptions (external_id, organization_id) WHERE external_id IS NOT NULL;
CREATE INDEX subscriptions_by_host ON subscriptions (substr(url, instr(url, '//') + 2));
CREATE INDEX subscriptions_by_host_in_organization ON subscriptions (organization_id, substr(url, instr(url, '//') + 2));
CREATE INDEX subscriptions_live ON subscriptions (organization_id) WHERE deleted_at IS NULL;
CREATE INDEX subscriptions_in_trouble ON subscriptions (organization_id) WHERE status <> 'healthy' AND paused = 0 AND deleted_at IS NULL;
CREATE INDEX subscriptions_paused ON subscriptions (last_error) WHERE paused = 1; -- last_error names a user

-- The own request headers of subscriptions. They stand apart from the subscriptions, because they may be long, and each
-- attempt updates its subscription.
CREATE TABLE subscription_headers (
    subscription_id INTEGER PRIMARY KEY REFERENCES subscriptions (id),
    names           TEXT    NOT NULL, -- separated by spaces
    changed_at      INTEGER NOT NULL,
    sealed          BLOB    NOT NULL  -- the values: a sealed JSON array of strings, in the order of the names
) STRICT;

-- The patterns that fan-out uses to find the subscriptions of an event. '*' stands for every type. No pattern of a
-- subscription covers another one of it, so an event finds each subscription once.
CREATE TABLE subscription_patterns (
    organization_id INTEGER NOT NULL REFERENCES organizations (id),
    pattern         TEXT    NOT NULL,
    subscription_id INTEGER NOT NULL REFERENCES subscriptions (id),
    PRIMARY KEY (organization_id, pattern, subscription_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX subscription_patterns_by_subscription ON subscription_patterns (subscription_id);

CREATE TABLE events (
    id              INTEGER PRIMARY KEY,
    organization_id INTEGER NOT NULL REFERENCES organizations (id),
    type            TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    about           INTEGER,          -- the subscription that the event is about; it never receives the event
    held            INTEGER,          -- of its first deliveries, those to disabled subscriptions; NULL: the plan had no webhooks
    filtered        INTEGER,          -- subscriptions that want its type, but whose filter it did not pass; NULL: none; -1: no delivery, but a feed has it
    mark            INTEGER,          -- 1: a test of one subscription; 2: its type was not in the catalogue; NULL: neither
    body            BLOB    NOT NULL, -- the bytes that are sent; the columns that queries read come before it
    idempotency_key TEXT,
    request_digest  BLOB              -- with the key: tells a repeated request from another event
) STRICT;

CREATE INDEX events_by_organization ON events (organization_id);
CREATE UNIQUE INDEX events_by_idempotency_key ON events (idempotency_key, organization_id)
    WHERE idempotency_key IS NOT NULL;

-- The catalogue of event types, for all organizations. No event is checked against it.
CREATE TABLE event_types (
    type        TEXT    PRIMARY KEY NOT NULL,
    description TEXT    NOT NULL,
    event_group TEXT    NOT NULL, -- empty: none
    example     TEXT,             -- the data of an event, a JSON object; NULL: none
    schema      TEXT,             -- a JSON object; NULL: none
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    size        INTEGER GENERATED ALWAYS AS (octet_length(type) + octet_length(description) + octet_length(event_group)
        + coalesce(octet_length(example), 0) + coalesce(octet_length(schema), 0)) VIRTUAL
) STRICT;

CREATE INDEX event_types_by_size ON event_types (type, size); -- for the sum of all, which each change needs

-- The queue. While an attempt is in progress, its delivery is the only record of it: state 4 or 5 says so, due_at is the
-- time at which the attempt began, and its number is attempts + 1. In state 5, nothing follows the attempt: it is a test, or
-- its delivery was dropped meanwhile.
CREATE TABLE deliveries (
    id              INTEGER PRIMARY KEY,
    event_id        INTEGER NOT NULL REFERENCES events (id),
    subscription_id INTEGER NOT NULL REFERENCES subscriptions (id),
    state           INTEGER NOT NULL CHECK (state BETWEEN 0 AND 5), -- pending, delivered, exhausted, dropped, sending, sending at last
    cause           INTEGER NOT NULL CHECK (cause BETWEEN 0 AND 3), -- event, retry, manual, test: the cause of its first attempt
    attempts        INTEGER NOT NULL, -- finished attempts
    due_at          INTEGER NOT NULL, -- of an exhausted delivery: when it ended
    sequence        INTEGER -- of an ordered subscription: the place in its order, which is event_id; 0: outside the order; NULL: of another subscription
) STRICT;

CREATE INDEX deliveries_by_event ON deliveries (event_id, subscription_id);
CREATE INDEX deliveries_pending ON deliveries (subscription_id, due_at) WHERE state = 0;
CREATE INDEX deliveries_ordered ON deliveries (subscription_id, sequence, due_at) WHERE state = 0 AND sequence IS NOT NULL;
CREATE INDEX deliveries_exhausted ON deliveries (subscription_id, due_at) WHERE state = 2;
CREATE INDEX deliveries_sending ON deliveries (subscription_id, due_at) WHERE state >= 4;

-- Attempts that have ended. The id of an attempt contains its delivery and its number (see webhook.AttemptRow), so neither needs an index.
CREATE TABLE attempts (
    id              INTEGER PRIMARY KEY,                                   -- delivery_id * 256 + attempt_number
    delivery_id     INTEGER GENERATED ALWAYS AS (id >> 8) VIRTUAL,
    attempt_number  INTEGER GENERATED ALWAYS AS (id & 255) VIRTUAL,        -- from 1
    subscription_id INTEGER NOT NULL,                                      -- copied from the delivery, for the index of the log
    cause           INTEGER NOT NULL CHECK (cause BETWEEN 0 AND 3),        -- event, retry, manual, test
    outcome         INTEGER NOT NULL CHECK (outcome BETWEEN 1 AND 3),      -- succeeded, failed, interrupted
    response_status INTEGER,
    response_body   TEXT    NOT NULL,
    response_headers TEXT   NOT NULL DEFAULT '', -- lines of a name, a colon, a space and a value
    duration_ms     INTEGER NOT NULL,
    error           TEXT    NOT NULL,
    attempted_at    INTEGER NOT NULL,
    next_attempt_at INTEGER
) STRICT;

CREATE INDEX attempts_by_subscription ON attempts (subscription_id, attempted_at);
CREATE INDEX attempts_in_trouble ON attempts (subscription_id, attempted_at) WHERE outcome IN (2, 3);

-- Counts of the attempts of each minute, without tests. They are updated with each recorded attempt, because counting
-- later would have to read every attempt. within_N counts attempts that took at most N ms and more than the previous bound.
-- expired counts deliveries that retention deleted while they were pending.
CREATE TABLE attempt_minutes (
    organization_id INTEGER NOT NULL, -- 0 stands for all organizations
    subscription_id INTEGER NOT NULL, -- 0 stands for all subscriptions of the organization
    minute          INTEGER NOT NULL, -- minutes since the epoch
    succeeded       INTEGER NOT NULL,
    failed          INTEGER NOT NULL,
    expired         INTEGER NOT NULL,
    within_10       INTEGER NOT NULL,
    within_25       INTEGER NOT NULL,
    within_50       INTEGER NOT NULL,
    within_100      INTEGER NOT NULL,
    within_250      INTEGER NOT NULL,
    within_500      INTEGER NOT NULL,
    within_1000     INTEGER NOT NULL,
    within_2500     INTEGER NOT NULL,
    within_5000     INTEGER NOT NULL,
    within_10000    INTEGER NOT NULL,
    longer          INTEGER NOT NULL,
    PRIMARY KEY (organization_id, subscription_id, minute)
) STRICT, WITHOUT ROWID;
