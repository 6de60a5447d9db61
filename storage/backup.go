package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/encryption"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// CreateBackup makes a copy in the directory "backups" beside the database. An empty name means a dated one. Faults: Conflict if the name
// is taken, or if another backup is running; Unavailable if the disk has no room, or if the server cannot write to the directory.
func (s *Store) CreateBackup(ctx context.Context, by access.Actor, name string, keep int) (backup.Report, error) {
	r, err := Backup(ctx, BackupOptions{Path: s.File.Path(), Name: name, Keep: keep, KeySet: s.keySet})
	switch {
	case errors.Is(err, ErrExists):
		taken := fault.New(fault.Conflict, "already_exists", "A backup with this name exists; choose another name.")
		taken.Existing = name
		return r, taken.Because(err)
	case errors.Is(err, backup.ErrRunning):
		return r, fault.New(fault.Conflict, "backup_running", "Another backup is running; wait until it ends.").Because(err)
	case errors.Is(err, sqlite.ErrNoSpace):
		return r, fault.New(fault.Unavailable, "no_space", "The disk has too little space for a backup; free some space on the server.").Because(err)
	case errors.Is(err, disk.ErrAccess):
		return r, fault.New(fault.Unavailable, "backup_directory_unusable",
			"The server cannot use its directory of backups; its log says what to do.").Because(err)
	case err != nil:
		return r, sqlite.Unavailable(err)
	}
	if r.Warning != "" {
		s.log.Warn("backup made with a warning", "file", r.File, "warning", r.Warning)
	}
	return r, s.File.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
		return s.Queue.Audit(t, by, 0, access.BackupCreated, audit.Target{Type: "backup", ID: filepath.Base(r.File)},
			map[string]any{"bytes": r.Bytes, "sha256": r.SHA256, "encryption_key_id": r.KeyID})
	})
}

// BackupOptions configure Backup.
type BackupOptions = backup.Options

// Backup copies a database and describes the contents of the copy; see sqlite.Backup.
func Backup(ctx context.Context, o BackupOptions) (backup.Report, error) {
	var contents backup.Contents
	r, err := sqlite.Backup(ctx, o, copyHooks(&contents))
	r.Contents = contents
	if err == nil && !o.KeySet && encryption.LacksKey(r.Database, r.KeyID) {
		r.Warning = strings.TrimPrefix(r.Warning+"; ", "; ") + fmt.Sprintf(
			"%s does not have the key %s. Look for that key now, unless it is the setting encryption.key: nobody can restore the copy without it",
			r.Database+disk.Key, r.KeyID)
	}
	return r, err
}

// copyHooks returns the checks of a copy. They also set contents.
func copyHooks(contents *backup.Contents) sqlite.Copies {
	return sqlite.Copies{Version: schemaVersion, Inspect: func(ctx context.Context, db *sqlx.DB) error {
		if err := db.GetContext(ctx, contents, `
			SELECT (SELECT count(*) FROM events) AS events, (SELECT count(*) FROM deliveries) AS deliveries,
			       (SELECT count(*) FROM deliveries WHERE state = `+delivery.Pending+`)
			         + (SELECT count(*) FROM deliveries d INDEXED BY deliveries_sending WHERE `+delivery.SendingOn+`) AS pending`); err != nil {
			return err
		}
		var err error
		contents.KeyID, err = encryption.KeyID(ctx, db)
		return err
	}}
}
