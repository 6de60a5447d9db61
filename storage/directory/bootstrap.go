package directory

import (
	"context"
	"strconv"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/principal"
	"github.com/keyhook/keyhook/storage/sqlite"
)

const bootstrapToken = "bootstrap"

// Bootstrap is the first operator's access token.
type Bootstrap struct {
	Credential access.Credential // the zero value is none
	Life       time.Duration     // how long the token lasts; 0 is for ever
	Link       access.Credential // of a link that signs in as this token, once; the zero value is none. It needs a Life
}

// firstRequestAt names the row of table instance with the time of the first authenticated request.
const firstRequestAt = "first_request_at"

// KeepFirstRequest writes that there was an authenticated request. The owner of the file calls it from time to time.
func (d *Directory) KeepFirstRequest(ctx context.Context) error {
	if d.firstRequestKept || !d.firstRequest.Load() {
		return nil
	}
	err := d.file.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
		return t.Exec("INSERT OR IGNORE INTO instance (name, value) VALUES (?, ?)", firstRequestAt, []byte(strconv.FormatInt(t.Now(), 10)))
	})
	d.firstRequestKept = err == nil
	return err
}

// EnsureBootstrapToken makes the bootstrap credential an access token of the first operator, as long as there was no authenticated request:
// an earlier start may have ended before anybody read its token. The new token and its link replace the unused ones of earlier
// starts, so there is at most one. A revoked token stays revoked. Call it before the file runs.
func (d *Directory) EnsureBootstrapToken(b Bootstrap) error {
	return d.file.Alone(func(t *sqlite.Tx) error {
		digest := b.Credential.Digest()
		var first firstOperator
		if err := t.Get(&first, `
			SELECT m.user_id, m.organization_id, EXISTS (SELECT 1 FROM instance WHERE name = ?1)
			           OR EXISTS (SELECT 1 FROM access_tokens a WHERE a.user_id = m.user_id AND a.last_used_at IS NOT NULL) AS had_request,
			       EXISTS (SELECT 1 FROM access_tokens WHERE digest = ?2) AS known,
			       EXISTS (SELECT 1 FROM access_tokens WHERE digest = ?2 AND revoked_at IS NOT NULL) AS revoked
			FROM roles r JOIN memberships m ON m.role_id = r.id
			WHERE r.name = ?3 ORDER BY m.organization_id, m.user_id LIMIT 1`, firstRequestAt, digest[:], access.RoleOperator); err != nil {
			return err
		}
		d.firstRequest.Store(first.HadRequest)
		d.firstRequestKept = first.HadRequest
		if b.Credential.IsZero() {
			return nil
		}
		d.bootstrapRefused = first.Revoked || first.HadRequest && !first.Known && b.Life == 0
		if first.HadRequest {
			return nil
		}
		if err := d.revokeUnused(t, first, digest); err != nil || first.Known {
			return err
		}
		d.bootstrapCreated = true
		return d.inviteOperator(t, first, b)
	})
}

// firstOperator is an operator of the oldest organization with an operator, and what decides about the bootstrap token.
type firstOperator struct {
	User         int64 `db:"user_id"` // row id
	Organization int64 `db:"organization_id"`
	HadRequest   bool  `db:"had_request"` // a used token shows it too: the process may have ended before it wrote the row
	Known        bool  `db:"known"`       // the bootstrap credential is an access token
	Revoked      bool  `db:"revoked"`     // that token is revoked
}

// revokeUnused revokes the unused tokens of earlier starts, except the given one.
func (d *Directory) revokeUnused(t *sqlite.Tx, first firstOperator, but access.Digest) error {
	unused, err := sqlite.All[issued](t, `
		SELECT a.id, a.public_id, a.organization_id, a.name, u.public_id AS user_public_id FROM access_tokens a JOIN users u ON u.id = a.user_id
		WHERE a.user_id = ? AND a.name = ? AND a.last_used_at IS NULL AND a.revoked_at IS NULL AND a.digest <> ?`,
		first.User, bootstrapToken, but[:])
	if err != nil {
		return err
	}
	for _, token := range unused {
		if err := d.revoke(t, access.System(token.Organization), accessTokens, token, map[string]any{}); err != nil {
			return err
		}
	}
	return nil
}

func (d *Directory) inviteOperator(t *sqlite.Tx, first firstOperator, b Bootstrap) error {
	var expiresAt *int64
	if b.Life > 0 {
		expiresAt = new(time.UnixMilli(t.Now()).Add(b.Life).UnixMilli())
	}
	made, err := d.makeToken(t, access.System(first.Organization), first.User, first.Organization, b.Credential, bootstrapToken, expiresAt)
	if err != nil || expiresAt == nil || b.Link.IsZero() {
		return err
	}
	_, err = insertLink(t, b.Link, *expiresAt, newSession{
		Session: access.Session{Kind: access.LinkSession}, User: first.User, Organization: first.Organization, Token: &made.RowID,
	})
	return err
}

// BootstrapCreated reports whether this start created the bootstrap access token. A start does so until somebody has made an
// authenticated request.
func (d *Directory) BootstrapCreated() bool { return d.bootstrapCreated }

// BootstrapRefused reports whether the bootstrap credential is no valid access token: it was revoked, or it was set after the first
// authenticated request.
func (d *Directory) BootstrapRefused() bool { return d.bootstrapRefused }

// The names of a new instance.
const (
	firstOrganization = "Default"
	firstPlan         = "enterprise"
	firstName         = "admin"

	// systemName is the name of the built-in user, and the value of its e-mail column. It is not an e-mail address, so no identity
	// provider can verify it.
	systemName = "system"
)

// Seed writes the first rows of a new directory. The first operator's token is created later, at each start until somebody has
// made a request; see EnsureBootstrapToken.
func Seed(t *sqlite.Tx) error {
	for _, p := range access.SeedPlans() {
		if _, err := insertPlan(t, p); err != nil {
			return err
		}
	}
	for _, p := range access.BuiltInPermissions() {
		if _, err := insertPermission(t, p); err != nil {
			return err
		}
	}
	for _, name := range []string{access.RoleOperator, access.RoleOwner, access.RoleCustomer, access.RoleMember} {
		if _, err := insertRole(t, name, true); err != nil {
			return err
		}
	}
	if _, err := insertUser(t, access.User{Email: systemName, Name: systemName, IsActive: true, BuiltIn: true}); err != nil {
		return err
	}
	organization, err := insertOrganization(t, access.Organization{Name: firstOrganization, Plan: firstPlan})
	if err != nil {
		return err
	}
	user, err := insertUser(t, access.User{Email: principal.FirstEmail, Name: firstName, IsActive: true})
	if err != nil {
		return err
	}
	return upsertMember(t, organization.RowID, user.RowID, access.RoleOperator)
}
