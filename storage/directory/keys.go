package directory

import (
	"cmp"
	"context"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/publicid"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

const (
	apiKeyColumns = `
	k.id, k.public_id, k.organization_id, o.public_id AS organization_public_id, o.external_id AS organization_external_id, u.public_id AS created_by, k.name, k.scope, k.key_prefix,
	k.window_id, k.created_at, k.expires_at, k.last_used_at, k.revoked_at, k.metadata, k.external_id, k.allowed_networks, before.public_id AS replaces, after.public_id AS rotated_to,
	o.name AS organization_name, u.name AS creator_name, u.service_of IS NOT NULL AS creator_is_service`
	apiKeyJoins = `
	CROSS JOIN organizations o ON o.id = k.organization_id CROSS JOIN users u ON u.id = k.user_id
	LEFT JOIN api_keys before ON before.id = k.replaces
	LEFT JOIN api_keys after ON after.replaces = k.id`
	selectKeys = "SELECT" + apiKeyColumns + " FROM api_keys k" + apiKeyJoins
)

// keyHasStatus is the condition for the status ?5 at the time ?6, where an empty status is any, and for no use since ?7, unless it is 0.
const keyHasStatus = `
	(?7 = 0 OR coalesce(k.last_used_at, k.created_at) <= ?7) AND ?5 IN ('', CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= ?6 THEN 'expired' ELSE 'active' END)`

// KeyPage lists the API keys of an organization, or of access.AllOrganizations, newest first. Faults: Unavailable if too many
// reads of the organization's logs are running.
func (d *Directory) KeyPage(ctx context.Context, organization int64, f access.KeyFilter) (page access.Page[access.Key], err error) {
	if f.Prefix != "" {
		page.Rows, err = d.keysByPrefix(ctx, organization, f)
		return page, err
	}
	list := scan.List[access.Key]{
		Logs: d.logs, Table: "api_keys k", Index: "api_keys_by_organization", Columns: apiKeyColumns, Joins: apiKeyJoins, Where: keyHasStatus,
	}
	return list.Page(ctx, scan.Query{
		Organization: organization, Before: f.Before, Limit: f.Limit, Filtered: f.Status != "" || f.Unused != 0, Args: []any{string(f.Status), f.Now, f.Unused},
	})
}

// keysByPrefix finds the keys with a prefix. They are few, because it has six random characters.
func (d *Directory) keysByPrefix(ctx context.Context, organization int64, f access.KeyFilter) ([]access.Key, error) {
	return sqlite.All[access.Key](d.logs.InTurn(ctx, organization),
		"SELECT"+apiKeyColumns+" FROM api_keys k INDEXED BY api_keys_by_prefix"+apiKeyJoins+`
		WHERE k.key_prefix = ?1 AND ?2 IN (0, k.organization_id) AND k.id < ?3 AND `+keyHasStatus+`
		ORDER BY k.id DESC LIMIT ?4`, f.Prefix, organization, scan.UpperBound(f.Before), f.Limit, string(f.Status), f.Now, f.Unused)
}

// Key returns an API key of an organization in any status. Faults: NotFound.
func (d *Directory) Key(ctx context.Context, organization int64, id string) (access.Key, error) {
	return keyNamed(d.reads.In(ctx), organization, id)
}

func keyNamed(from sqlite.Reader, organization int64, id string) (access.Key, error) {
	return sqlite.One[access.Key](from, "API key", selectKeys+" WHERE k.public_id = ? AND k.organization_id = ?", id, organization)
}

// KeyID returns the id of the active API key with an external id. Faults: NotFound.
func (d *Directory) KeyID(ctx context.Context, organization int64, externalID string) (string, error) {
	return sqlite.One[string](d.reads.In(ctx), "API key", activeKeyNamed, organization, externalID, time.Now().UnixMilli())
}

// activeKeyNamed selects the active API key of an organization with an external id.
const activeKeyNamed = `
	SELECT public_id FROM api_keys INDEXED BY api_keys_by_external_id
	WHERE organization_id = ? AND external_id = ? AND external_id IS NOT NULL AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)`

// CreateKey creates an API key in the organization in which by acts. It belongs to by's user, to the service account or to the user
// that k names; see ownerOf. Its scope is the requested scope, narrowed to the permissions of the owner's role there and of by's
// credential. Faults: Forbidden if the plan lacks API keys, or if by may not name another user; Conflict if the owner is not a member
// or not active, if the plan allows no more keys, or if an active key has the external id; Invalid if the scope names unknown permissions, or nothing of it can be granted,
// or the named user is not a member; Unauthenticated if by's own credential was refused meanwhile.
func (d *Directory) CreateKey(ctx context.Context, by access.Principal, actor access.Actor, k access.NewKey) (access.Key, error) {
	w := d.audited(workFor(by.Organization.RowID), access.KeyCreated)
	return sqlite.Returning(ctx, d.file, w, func(t *sqlite.Tx) (made access.Key, err error) {
		owner, err := ownerOf(t, by, k.User)
		if err != nil {
			return made, err
		}
		own, err := grantableBy(t, by, owner)
		if err := cmp.Or(err, knownPermissions(t, "scope", k.Scope)); err != nil {
			return made, err
		}
		granted, err := intersect(k.Scope, own)
		if err != nil {
			return made, err
		}
		taken := RefuseTaken(t, "API key", "external_id", activeKeyNamed, by.Organization.RowID, k.ExternalID, t.Now())
		if err := cmp.Or(taken, requireRoomForKey(t, by.Organization.RowID)); err != nil {
			return made, err
		}
		if made, err = d.addKey(t, by, actor, owner, k, granted, predecessor{}); err != nil {
			return made, err
		}
		details := map[string]any{
			"name": made.Name, "scope": made.Scope.String(), "scope_not_granted": k.Scope.Minus(granted).String(),
			"expires_at": timeText(made.ExpiresAt),
		}
		webhook.AddDetail(details, "external_id", made.ExternalID)
		if len(made.AllowedNetworks) > 0 {
			details["allowed_networks"] = made.AllowedNetworks.Texts()
		}
		nameOwner(details, by, made)
		return made, d.hooks.Audit(t, actor, by.Organization.RowID, access.KeyCreated, Target{Type: "api_key", ID: made.ID}, details)
	})
}

// grantableBy returns the most that by may grant to a new key: the permissions of the owner's role in the organization acted in
// that by's credential has too. A narrow credential of one organization must not create a wide key of another.
func grantableBy(t *sqlite.Tx, by access.Principal, owner keyOwner) (access.Scope, error) {
	if !owner.Plan {
		return access.Scope{}, fault.New(fault.Forbidden, "plan_capability_required",
			"The organization's plan does not include API keys; an operator can change the plan.")
	}
	if !owner.Member {
		return access.Scope{}, notMember("The creator of the key")
	}
	caller, err := principal.PermissionsOf(t, by.Authority())
	return principal.Effective(owner.Role).Intersect(caller), err
}

// intersect narrows a scope, and refuses an empty result.
func intersect(requested, own access.Scope) (access.Scope, error) {
	granted := requested.Intersect(own)
	if granted.Empty() {
		return granted, fault.InField("scope", "scope_not_grantable",
			"A key can only have permissions that both its creator and the user to whom it belongs have; name at least one of these.")
	}
	return granted, nil
}

// predecessor is the key that a new key replaces: its row id and its rate window. The zero value means no predecessor: the new
// key starts its own window, named by its row id.
type predecessor struct{ row, window *int64 }

// addKey writes a key for its owner, whom it makes if necessary. Faults: Limited if the plan allows no more bytes today.
func (d *Directory) addKey(
	t *sqlite.Tx, by access.Principal, actor access.Actor, owner keyOwner, k access.NewKey, granted access.Scope, from predecessor,
) (made access.Key, err error) {
	organization, size := by.Organization.RowID, len(k.Metadata)+len(k.AllowedNetworks.String())
	if err := d.quotas.Require(t, organization, quota.PerChange+size); err != nil {
		return made, err
	}
	d.quotas.Count(t, organization, size)
	user, err := d.makeOwner(t, actor, organization, owner)
	if err != nil {
		return made, err
	}
	if k.ExternalID != nil { // a key that has expired, or that a rotation ends, may have it
		if err := t.Exec(`
			UPDATE api_keys SET external_id = NULL
			WHERE organization_id = ? AND external_id = ? AND external_id IS NOT NULL AND revoked_at IS NULL`, organization, k.ExternalID); err != nil {
			return made, err
		}
	}
	digest := k.Credential.Digest()
	row, err := t.Insert(`
		INSERT INTO api_keys (id, public_id, organization_id, user_id, name, scope, digest, key_prefix, window_id, created_at, expires_at, replaces, metadata, external_id, allowed_networks)
		SELECT next, ?1, ?2, ?3, ?4, ?5, ?6, ?7, coalesce(?10, next), ?8, ?9, ?11, ?12, ?13, ?14
		FROM (SELECT coalesce(max(id), 0) + 1 AS next FROM api_keys)`,
		publicid.New(access.KeyID), organization, user, k.Name, granted.String(), digest[:], k.Credential.Display(), t.Now(), k.ExpiresAt,
		from.window, from.row, cmp.Or(k.Metadata, "{}"), k.ExternalID, k.AllowedNetworks.String())
	if err != nil {
		return made, err
	}
	err = t.Get(&made, selectKeys+" WHERE k.id = ?", row)
	return made, err
}

// RotateKey replaces an API key of the organization in which by acts. The new key has the name, the rate window, the expiry
// and the metadata of the old key, and takes over its external id. The old key is revoked; with a grace, it expires after the grace at the latest.
//
// The new key belongs to by's user, even if the old key had another creator, because a key acts as its creator. But a key of the
// service account stays one; see ownerAfter. The new scope is the old scope, narrowed to the permissions of that user's role and of
// by's credential. So a rotation never grants more than a creation by the same caller, and a key that rotates itself keeps its scope.
//
// A key can be rotated once; then rotate its successor. Otherwise one key would become two. Faults: NotFound; Conflict if the
// key was rotated, is revoked or has expired, or if the user is not a member; Forbidden if the plan lacks API keys; Invalid if
// nothing of the scope can be granted; Unauthenticated if by's own credential was refused meanwhile.
func (d *Directory) RotateKey(ctx context.Context, by access.Principal, actor access.Actor, id string, credential access.Credential, grace time.Duration) (access.RotatedKey, error) {
	w := d.audited(urgentFor(by.Organization.RowID), access.KeyRotated)
	w.Reserve = false // it makes a key, too, and can be repeated without end
	return sqlite.Returning(ctx, d.file, w, func(t *sqlite.Tx) (rotated access.RotatedKey, err error) {
		old, err := keyNamed(t, by.Organization.RowID, id)
		if err != nil {
			return rotated, err
		}
		owner, err := ownerAfter(t, by, old)
		if err != nil {
			return rotated, err
		}
		held, err := grantableBy(t, by, owner)
		if err := cmp.Or(err, rotatable(old, t.Now()), requireRoomForGrace(t, by.Organization.RowID, grace)); err != nil {
			return rotated, err
		}
		granted, err := intersect(old.Scope, held)
		if err != nil {
			return rotated, err
		}
		rotated.NotGranted = old.Scope.Minus(granted)
		if rotated.Key, err = d.addKey(t, by, actor, owner, old.Again(credential), granted, predecessor{&old.RowID, &old.Window}); err != nil {
			return rotated, err
		}
		if err := endKey(t, old, grace); err != nil {
			return rotated, err
		}
		d.OutdatePrincipals(t)
		details := map[string]any{
			"name": old.Name, "new_key_id": rotated.ID, "grace_seconds": int64(grace / time.Second),
			"scope": granted.String(), "scope_not_granted": rotated.NotGranted.String(), "expires_at": timeText(rotated.ExpiresAt),
		}
		nameOwner(details, by, rotated.Key)
		return rotated, d.hooks.Audit(t, actor, by.Organization.RowID, access.KeyRotated, Target{Type: "api_key", ID: id}, details)
	})
}

func rotatable(k access.Key, now int64) error {
	if k.RotatedTo != nil {
		refused := fault.New(fault.Conflict, "already_rotated", "This API key has been rotated into %s; rotate that one, or create a new key if it has ended.", *k.RotatedTo)
		refused.Existing = *k.RotatedTo
		return refused
	}
	switch k.Status(now) {
	case access.Revoked:
		return fault.New(fault.Conflict, "key_not_active", "This API key has been revoked; create a new one.")
	case access.Expired:
		return fault.New(fault.Conflict, "key_not_active", "This API key has expired; create a new one.")
	}
	return nil
}

// endKey revokes a key; with a grace, the key expires after the grace, or earlier if it would have.
func endKey(t *sqlite.Tx, k access.Key, grace time.Duration) error {
	if grace <= 0 {
		return t.Exec("UPDATE api_keys SET revoked_at = ? WHERE id = ?", t.Now(), k.RowID)
	}
	return t.Exec("UPDATE api_keys SET expires_at = min(?1, coalesce(expires_at, ?1)) WHERE id = ?2", t.Now()+grace.Milliseconds(), k.RowID)
}

// RevokeKey revokes an API key, named by its id or its external id, for all requests that begin after RevokeKey has returned. The
// operation is idempotent. A rotation moves an external id, so it is looked up in the transaction. Faults: NotFound.
func (d *Directory) RevokeKey(ctx context.Context, by access.Actor, organization int64, named string) error {
	return d.file.Write(ctx, d.audited(urgentFor(organization), access.KeyRevoked), func(t *sqlite.Tx) (err error) {
		id := named
		if !access.KeyID.Valid(named) {
			if id, err = sqlite.One[string](t, "API key", activeKeyNamed, organization, named, t.Now()); err != nil {
				return err
			}
		}
		found, err := keyNamed(t, organization, id)
		if err != nil {
			return err
		}
		return d.revoke(t, by, apiKeys, issued{Issued: found.Issued}, map[string]any{})
	})
}

// timeText formats a time for the audit log; nil stays nil.
func timeText(at *int64) any {
	if at == nil {
		return nil
	}
	return string(webhook.AppendTime(nil, *at))
}
