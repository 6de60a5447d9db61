package directory

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/storage/access"
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

// firstRequest says whether there was an authenticated request, by any credential. From then on, no start creates a bootstrap
// token. Requests set a flag; KeepFirstRequest writes the row once.
type firstRequest struct {
	made atomic.Bool
	kept bool // the row is written; only KeepFirstRequest uses it
}

// note notes an authenticated request. It writes only once, because all requests share the flag.
func (f *firstRequest) note() {
	if !f.made.Load() {
		f.made.Store(true)
	}
}

// KeepFirstRequest writes that there was an authenticated request. The owner of the file calls it from time to time.
func (d *Directory) KeepFirstRequest(ctx context.Context) error {
	if d.firstRequest.kept || !d.firstRequest.made.Load() {
		return nil
	}
	err := d.file.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
		return t.Exec("INSERT OR IGNORE INTO instance (name, value) VALUES (?, ?)", firstRequestAt, []byte(strconv.FormatInt(t.Now(), 10)))
	})
	d.firstRequest.kept = err == nil
	return err
}

// EnsureBootstrapToken makes the bootstrap credential an access token of the first operator, as long as there was no authenticated request:
// an earlier start may have ended before anybody read its token. The new token and its link replace the unused ones of earlier
// starts, so there is at most one. A revoked token stays revoked. Call it before the file runs.
func (d *Directory) EnsureBootstrapToken(b Bootstrap) error {
	return d.file.Alone(func(t *sqlite.Tx) error {
		var first firstOperator
		if err := t.Get(&first, `
			SELECT m.user_id, m.organization_id FROM roles r JOIN memberships m ON m.role_id = r.id
			WHERE r.name = ? ORDER BY m.organization_id, m.user_id LIMIT 1`, access.RoleOperator); err != nil {
			return err
		}
		var had bool // an authenticated request; a used token shows it too: the process may have ended before it wrote the row
		if err := t.Get(&had, `
			SELECT EXISTS (SELECT 1 FROM instance WHERE name = ?)
			    OR EXISTS (SELECT 1 FROM access_tokens WHERE user_id = ? AND last_used_at IS NOT NULL)`, firstRequestAt, first.User); err != nil {
			return err
		}
		d.firstRequest.made.Store(had)
		d.firstRequest.kept = had
		if b.Credential == (access.Credential{}) {
			return nil
		}
		known, revoked, err := bootstrapState(t, b.Credential)
		if err != nil {
			return err
		}
		if revoked || had && !known && b.Life == 0 {
			d.bootstrapRefused = true
		}
		if had {
			return nil
		}
		if err := d.revokeUnused(t, first, b.Credential); err != nil || known {
			return err
		}
		d.bootstrapCreated = true
		return d.inviteOperator(t, first, b)
	})
}

// firstOperator is an operator of the oldest organization with an operator, by row ids.
type firstOperator struct {
	User         int64 `db:"user_id"`
	Organization int64 `db:"organization_id"`
}

// bootstrapState reports whether a credential is an access token, and whether that token is revoked.
func bootstrapState(t *sqlite.Tx, c access.Credential) (known, revoked bool, err error) {
	digest := c.Digest()
	err = t.Get(&revoked, "SELECT revoked_at IS NOT NULL FROM access_tokens WHERE digest = ?", digest[:])
	if errors.Is(err, sql.ErrNoRows) {
		return false, false, nil
	}
	return err == nil, revoked, err
}

// revokeUnused revokes the unused tokens of earlier starts, except the given one.
func (d *Directory) revokeUnused(t *sqlite.Tx, first firstOperator, but access.Credential) error {
	digest, unused := but.Digest(), []tokenToRevoke{}
	if err := t.List(&unused, selectTokenToRevoke+`
		WHERE a.user_id = ? AND a.name = ? AND a.last_used_at IS NULL AND a.revoked_at IS NULL AND a.digest <> ?`,
		first.User, bootstrapToken, digest[:]); err != nil {
		return err
	}
	for _, token := range unused {
		if err := d.revokeToken(t, access.System(token.Organization), token, map[string]any{}); err != nil {
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
	if err != nil || expiresAt == nil || b.Link == (access.Credential{}) {
		return err
	}
	_, err = insertLink(t, b.Link, *expiresAt, newSession{
		Kind: access.LinkSession, User: first.User, Organization: first.Organization, Token: &made.RowID,
	})
	return err
}

// BootstrapCreated reports whether this start created the bootstrap access token. A start does so until somebody has made an
// authenticated request.
func (d *Directory) BootstrapCreated() bool { return d.bootstrapCreated }

// BootstrapRefused reports whether the bootstrap credential is no valid access token: it was revoked, or it was set after the first
// authenticated request.
func (d *Directory) BootstrapRefused() bool { return d.bootstrapRefused }
