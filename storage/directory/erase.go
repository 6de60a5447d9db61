package directory

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// EraseUser removes the personal data of a user: name, e-mail address and external id. All credentials of the user are refused from
// the next request on, and nobody can use the user again. The copies of the data in the history are removed soon after; see
// access.Erasure. The operation is idempotent. Faults: NotFound; Conflict for the built-in user, for a service account and for the
// last active operator.
func (d *Directory) EraseUser(ctx context.Context, by access.Actor, id string) (access.Erasure, error) {
	return returning(ctx, d, urgentFor(by.Organization), func(t *sqlite.Tx) (e access.Erasure, err error) {
		u, e, err := prepareErasure(t, id)
		if err != nil || u.ErasedAt != nil {
			return e, err
		}
		if _, err := t.Exec(`
			UPDATE users SET email = NULL, name = ?1, external_id = NULL, is_active = 0, erased_at = ?2, updated_at = ?2 WHERE id = ?3`,
			access.ErasedUserName, t.Now(), u.RowID); err != nil {
			return e, err
		}
		e.ErasedAt = new(t.Now())
		d.OutdatePrincipals(t)
		if err := d.hooks.UserErased(t, u); err != nil {
			return e, err
		}
		return e, d.hooks.Audit(t, by, 0, access.UserErased, Target{Type: "user", ID: u.ID}, map[string]any{
			"api_keys": e.APIKeys, "access_tokens": e.AccessTokens, "memberships": e.Memberships,
		})
	})
}

// CountErasure says what EraseUser would end. Faults: as EraseUser.
func (d *Directory) CountErasure(ctx context.Context, by access.Actor, id string) (access.Erasure, error) {
	return returning(ctx, d, workFor(by.Organization), func(t *sqlite.Tx) (access.Erasure, error) {
		_, e, err := prepareErasure(t, id)
		return e, err
	})
}

// prepareErasure finds a user and what the erasure of the user ends. It refuses users that cannot be erased.
func prepareErasure(t *sqlite.Tx, id string) (u access.User, e access.Erasure, err error) {
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
	users := []access.User{}
	err := d.list(ctx, &users, "SELECT "+userColumns+" FROM users INDEXED BY users_to_clean WHERE erased_at IS NOT NULL AND cleaned_at IS NULL AND id > ? ORDER BY id LIMIT ?", after, limit)
	return users, err
}

// EndUser ends the API keys, the access tokens and the memberships of an erased user. It calls pause between transactions.
func (d *Directory) EndUser(ctx context.Context, user int64, pause func() error) error {
	return d.inBatches(ctx, user, pause, []batch{{
		next: "SELECT coalesce(max(id), 0) FROM (SELECT id FROM api_keys WHERE user_id = ?1 AND id > ?2 ORDER BY id LIMIT ?3)",
		run:  "UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?4) WHERE user_id = ?1 AND id > ?2 AND id <= ?3",
	}, {
		next: "SELECT coalesce(max(id), 0) FROM (SELECT id FROM access_tokens WHERE user_id = ?1 AND id > ?2 ORDER BY id LIMIT ?3)",
		run:  "UPDATE access_tokens SET revoked_at = coalesce(revoked_at, ?4), name = '' WHERE user_id = ?1 AND id > ?2 AND id <= ?3",
	}, {
		next: "SELECT coalesce(max(organization_id), 0) FROM (SELECT organization_id FROM memberships WHERE user_id = ?1 AND organization_id > ?2 ORDER BY organization_id LIMIT ?3)",
		run:  "DELETE FROM memberships WHERE user_id = ?1 AND organization_id > ?2 AND organization_id <= ?3 AND ?4 > 0",
	}})
}

// UserCleaned notes that the erasure of a user is complete.
func (d *Directory) UserCleaned(ctx context.Context, user int64) error {
	return d.change(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
		_, err := t.Exec("UPDATE users SET cleaned_at = ? WHERE id = ?", t.Now(), user)
		return err
	})
}

// batch is a statement for many rows of one owner, which runs for some of them at a time.
type batch struct {
	next string // the last row of the next part: of the owner ?1, after the row ?2, at most ?3 rows; 0 if there is none
	run  string // for the rows of the owner ?1 after ?2 and up to ?3, at the time ?4
}

// batchRows limits how long other writes wait for one part of a batch.
const batchRows = 500

// inBatches runs the batches for an owner, and calls pause after each transaction.
func (d *Directory) inBatches(ctx context.Context, owner int64, pause func() error, batches []batch) error {
	for _, b := range batches {
		for after := int64(0); ; {
			last, err := returning(ctx, d, sqlite.Work{Cost: batchRows}, func(t *sqlite.Tx) (last int64, err error) {
				if err := t.Get(&last, b.next, owner, after, batchRows); err != nil || last == 0 {
					return 0, err
				}
				d.OutdatePrincipals(t)
				_, err = t.Exec(b.run, owner, after, last, t.Now())
				return last, err
			})
			if err != nil {
				return err
			}
			if last == 0 {
				break
			}
			after = last
			if err := pause(); err != nil {
				return err
			}
		}
	}
	return nil
}
