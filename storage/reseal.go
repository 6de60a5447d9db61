package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/keyhook/keyhook/storage/seal"
)

// reseal seals all anew, in an order in which there is no moment at which a key is needed that is not kept.
func (s *Store) reseal(ctx context.Context, r *rekeying, done *Rekeyed) error {
	if r.inFile {
		others := slices.DeleteFunc(slices.Clone(r.stored), func(k seal.Key) bool { return k.ID() == r.to.ID() })
		if err := r.file.write(append([]seal.Key{r.to}, others...)...); err != nil {
			return err
		}
	}
	if err := s.beginChange(done.Before); err != nil {
		return err
	}
	for after := int64(0); ; {
		if ctx.Err() != nil {
			return errors.New("interrupted; run the same command again to go on where it stopped")
		}
		var n int
		var next int64
		err := s.alone(func(t *tx) (err error) {
			next, n, err = s.resealBatch(t, after)
			return err
		})
		if err != nil {
			return fmt.Errorf("seal secrets anew: %w", err)
		}
		done.Secrets += n
		if next == after {
			break
		}
		after = next
	}
	if err := s.alone(func(t *tx) (err error) {
		done.Unreadable, err = s.endChange(t, r.to)
		return err
	}); err != nil {
		return fmt.Errorf("end the change of the key: %w", err)
	}
	return nil
}

// sealedRow is a subscription as its secrets are kept.
type sealedRow struct {
	Row      int64  `db:"id"`
	ID       string `db:"public_id"`
	Deleted  bool   `db:"deleted"`
	Secret   []byte `db:"secret"`
	Previous []byte `db:"previous_secret"`
}

func sealedRows(t *tx, after int64) (rows []sealedRow, err error) {
	err = t.list(&rows, `
		SELECT id, public_id, deleted_at IS NOT NULL AS deleted, secret, previous_secret
		FROM subscriptions WHERE id > ? ORDER BY id LIMIT ?`, after, rekeyBatch)
	return rows, err
}

// resealBatch seals the secrets of some subscriptions anew. It returns the last one's row id, after where there was none,
// and how many secrets there were to seal.
func (s *Store) resealBatch(t *tx, after int64) (last int64, n int, err error) {
	rows, err := sealedRows(t, after)
	if err != nil || len(rows) == 0 {
		return after, 0, err
	}
	for _, row := range rows {
		secret, changed := s.anew(row.Secret, row.ID)
		previous, changedToo := s.anew(row.Previous, row.ID)
		for _, c := range []bool{changed, changedToo} {
			if c {
				n++
			}
		}
		if !changed && !changedToo {
			continue
		}
		if _, err := t.exec("UPDATE subscriptions SET secret = ?, previous_secret = ? WHERE id = ?", secret, previous, row.Row); err != nil {
			return after, 0, err
		}
	}
	return rows[len(rows)-1].Row, n, nil
}

// anew seals a text with the active key, if another one sealed it and it can be opened.
func (s *Store) anew(sealed []byte, associated string) (text []byte, changed bool) {
	if id, err := seal.KeyID(sealed); err != nil || id == s.ring.ActiveID() {
		return sealed, false
	}
	plain, err := s.ring.Open(sealed, associated)
	if err != nil {
		return sealed, false
	}
	return s.ring.Seal(plain, associated), true
}

// endChange looks at all secrets again, with the new key alone, and if nothing needs another one says so in the file. It
// returns the subscriptions whose secret no key opens.
func (s *Store) endChange(t *tx, to seal.Key) (unreadable []string, err error) {
	alone := seal.NewRing(to)
	for after := int64(0); ; {
		rows, err := sealedRows(t, after)
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			break
		}
		for _, row := range rows {
			for i, sealed := range [][]byte{row.Secret, row.Previous} {
				if i == 1 && len(sealed) == 0 {
					continue
				}
				if _, err := alone.Open(sealed, row.ID); err == nil {
					continue
				}
				if _, err := s.ring.Open(sealed, row.ID); err == nil {
					return nil, fmt.Errorf("a secret of %s still needs the key of before; run the same command again", row.ID)
				}
				if !row.Deleted && !slices.Contains(unreadable, row.ID) {
					unreadable = append(unreadable, row.ID)
				}
			}
		}
		after = rows[len(rows)-1].Row
	}
	if _, err := t.exec("UPDATE instance SET value = ? WHERE name = 'canary'", alone.Seal([]byte(canary), canary)); err != nil {
		return nil, err
	}
	_, err = t.exec("DELETE FROM instance WHERE name = ?", changingKeys)
	return unreadable, err
}
