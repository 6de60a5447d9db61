package directory

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// MarkErased removes the personal data of a user: name, e-mail address and external id. All credentials of the user are refused from
// the next request on. The caller has called PrepareErasure, and lets EndUser remove the rest.
func (d *Directory) MarkErased(t *sqlite.Tx, row int64) error {
	d.OutdatePrincipals(t)
	return t.Exec(`
		UPDATE users SET email = NULL, name = ?1, external_id = NULL, is_active = 0, erased_at = ?2, updated_at = ?2 WHERE id = ?3`,
		access.ErasedUserName, t.Now(), row)
}

// CountErasure says what the erasure of a user would end. Faults: as PrepareErasure.
func (d *Directory) CountErasure(ctx context.Context, by access.Actor, id string) (access.Erasure, error) {
	return sqlite.Returning(ctx, d.file, workFor(by.Organization), func(t *sqlite.Tx) (access.Erasure, error) {
		_, e, err := PrepareErasure(t, id)
		return e, err
	})
}

// PrepareErasure finds a user and what the erasure of the user ends. ErasedAt is not nil if the user is erased already. It refuses users
// that cannot be erased. Faults: NotFound; Conflict for the built-in user, for a service account and for the last active operator.
func PrepareErasure(t *sqlite.Tx, id string) (u access.User, e access.Erasure, err error) {
	if u, err = personNamed(t, id); err != nil {
		return u, e, err
	}
	if u.IsService() {
		return u, e, fault.New(fault.Conflict, "service_account", "This is a service account and belongs to no person. It ends when its organization is closed.")
	}
	e = access.Erasure{ID: u.ID, ErasedAt: u.ErasedAt, Complete: u.CleanedAt != nil}
	if u.ErasedAt != nil {
		return u, e, nil
	}
	if err := requireAnotherOperator(t, u.RowID, 0); err != nil {
		return u, e, err
	}
	err = t.Get(&e, `
		SELECT (SELECT count(*) FROM api_keys k
		        WHERE k.user_id = ?1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > ?2)) AS api_keys,
		       (SELECT count(*) FROM access_tokens a
		        WHERE a.user_id = ?1 AND a.revoked_at IS NULL AND (a.expires_at IS NULL OR a.expires_at > ?2)) AS access_tokens,
		       (SELECT count(*) FROM memberships WHERE user_id = ?1) AS memberships`, u.RowID, t.Now())
	return u, e, err
}

// UsersToClean lists the next erased users after a row of whom there may be copies of personal data.
func (d *Directory) UsersToClean(ctx context.Context, after int64, limit int) ([]access.User, error) {
	return sqlite.All[access.User](d.reads.In(ctx), "SELECT "+userColumns+` FROM users INDEXED BY users_to_clean
		WHERE erased_at IS NOT NULL AND cleaned_at IS NULL AND id > ? ORDER BY id LIMIT ?`, after, limit)
}

// EndUser ends the API keys, the access tokens and the memberships of an erased user. Each key that ends is in the audit log of its
// organization, with a reason that tells it from others.
func (d *Directory) EndUser(ctx context.Context, user int64) error {
	if err := scan.Batches(ctx, 0, func() (more bool, err error) {
		var keys []issued
		err = d.reads.In(ctx).List(&keys, "SELECT id, public_id, organization_id, name FROM api_keys WHERE user_id = ? AND revoked_at IS NULL LIMIT ?", user, batchRows)
		for _, k := range keys {
			if err == nil {
				err = d.file.Write(ctx, d.audited(workFor(k.Organization), access.KeyRevoked), func(t *sqlite.Tx) error {
					return d.revoke(t, access.System(k.Organization), apiKeys, k, map[string]any{"reason": "user_erased"})
				})
			}
		}
		return len(keys) == batchRows, err
	}); err != nil {
		return err
	}
	return d.inBatches(ctx, user, []batch{
		{"access_tokens", "user_id", "id", "UPDATE access_tokens SET revoked_at = coalesce(revoked_at, ?4), name = ''"},
		{"memberships", "user_id", "organization_id", "DELETE FROM memberships"},
	})
}

// UserCleaned notes that the erasure of a user is complete.
func (d *Directory) UserCleaned(ctx context.Context, user int64) error {
	return d.file.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
		return t.Exec("UPDATE users SET cleaned_at = ? WHERE id = ?", t.Now(), user)
	})
}

// batch is a change of all rows of one owner in a table, some at a time.
type batch struct {
	table, owner, row string // the table, its column of the owner, and the column that orders the rows
	change            string // a statement without its condition, in which ?4 is the time
}

// batchRows limits how long other writes wait for one part of a batch.
const batchRows = 500

func (d *Directory) inBatches(ctx context.Context, owner int64, batches []batch) error {
	for _, b := range batches {
		if err := scan.Rows(ctx, func(after int64) (last int64, err error) {
			return sqlite.Returning(ctx, d.file, sqlite.Work{Cost: batchRows}, func(t *sqlite.Tx) (int64, error) { return d.changeBatch(t, owner, after, b) })
		}); err != nil {
			return err
		}
	}
	return nil
}

// changeBatch changes the next rows after a row, and returns the last of them; 0 if there is none.
func (d *Directory) changeBatch(t *sqlite.Tx, owner, after int64, b batch) (last int64, err error) {
	rows := " WHERE " + b.owner + " = ?1 AND " + b.row + " > ?2"
	if err := t.Get(&last, "SELECT coalesce(max("+b.row+"), 0) FROM (SELECT "+b.row+" FROM "+b.table+rows+" ORDER BY "+b.row+" LIMIT ?3)",
		owner, after, batchRows); err != nil || last == 0 {
		return 0, err
	}
	d.OutdatePrincipals(t)
	return last, t.Exec(b.change+rows+" AND "+b.row+" <= ?3", owner, after, last, t.Now())
}
