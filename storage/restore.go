package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/encryption"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// Restore replaces the database of o by a copy with a held queue. Deliveries that are pending in the copy may have been
// delivered since. So nothing is sent until an operator has checked them.
//
// It changes nothing until Open accepts the copy with o. It returns ErrKey, ErrKeyMissing, or an error of sqlite.Restore.
func Restore(ctx context.Context, o Options, name string) (r backup.Restored, err error) {
	var from string
	r.Database, r.ReplacedDatabase, err = sqlite.Restore(ctx, sqlite.RestoreOptions{
		Path: o.Path, From: name, Copies: copyHooks(&r.Contents),
		Accept: func(path, found string) error {
			from = found
			keys, err := encryption.Source{Path: path, Key: o.EncryptionKey}.ForCopy(from, r.KeyID)
			o.findKeys = func(encryption.Source, sqlite.Start) (encryption.Keys, error) { return keys, nil }
			return err
		},
		Arrange: func(ctx context.Context, path string) error {
			o.Path, o.isCopy = path, true
			o.Synchronous, o.Bootstrap = Full, access.Credential{}
			s, err := Open(ctx, o)
			if err != nil {
				return err
			}
			if err := errors.Join(s.recordRestore(from, &r), s.Close()); err != nil {
				return fmt.Errorf("hold the queue: %w", err)
			}
			return nil
		},
	})
	return r, err
}

// recordRestore writes in a copy that it was restored. Subscribers receive that event after the release of the queue. So it counts what
// is pending in the copy before. Sessions and links end: some had ended after the copy was made. Recoveries end: what they would send may
// have been sent since.
func (s *Store) recordRestore(from string, r *backup.Restored) error {
	r.Pending = s.Pending()
	name := filepath.Base(from)
	return s.File.Alone(func(t *sqlite.Tx) error {
		var organization int64
		if err := t.Get(&organization, "SELECT min(id) FROM organizations WHERE closed_at IS NULL"); err != nil {
			return err
		}
		if err := s.Queue.BeginHold(t, "restored from "+name); err != nil {
			return err
		}
		if err := errors.Join(t.Exec("DELETE FROM sessions"), t.Exec("DELETE FROM sign_in_links"), t.Exec("UPDATE subscriptions SET recover_since = NULL")); err != nil {
			return err
		}
		return s.Queue.Audit(t, access.System(organization), 0, access.DatabaseRestored, audit.Target{Type: "backup", ID: name},
			map[string]any{"events": r.Events, "deliveries": r.Deliveries, "pending_deliveries": r.Pending})
	})
}
