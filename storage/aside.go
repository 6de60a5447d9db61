package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/keyhook/keyhook/storage/disk"
)

// A copy that is set aside is for going back to the binary of before: PATH.before-vN holds the file as it was before it
// got schema N. It has another name until the upgrade is durable, because before that it is of no use: one that is found
// under that name beside an old file is from an upgrade that was cut off, and is made again.
const (
	asidePrefix = ".before-v"
	asidePart   = ".part"
)

func asideName(path string, version int64) string {
	return fmt.Sprintf("%s%s%d", path, asidePrefix, version)
}

// copyAside copies the file, sees the copy onto the disk, and reads it back.
func (s *Store) copyAside(ctx context.Context) error {
	part := asideName(s.path, s.upgrades.version()) + asidePart
	if err := s.dropCopy(); err != nil {
		return err
	}
	// Nobody else is to read the secrets in it, however the process makes its files.
	file, err := disk.Create(part)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if _, err := s.tx.conn.ExecContext(ctx, "VACUUM INTO ?", part); err != nil { // an empty file will do
		if isFull(err) {
			err = fmt.Errorf("there must be room for a second database beside it: %w", err)
		}
		return errors.Join(err, s.dropCopy())
	}
	if err := errors.Join(syncFile(part), syncDir(filepath.Dir(part)), verifyCopy(ctx, part, s.outdated)); err != nil {
		return errors.Join(err, s.dropCopy())
	}
	return nil
}

// verifyCopy reads a copy whole.
func verifyCopy(ctx context.Context, path string, version int64) error {
	db, err := openCopy(ctx, path)
	if err != nil {
		return err
	}
	defer db.Close()
	wrong, err := unsound(ctx, db, "quick_check(1)")
	var got int64
	if err := errors.Join(err, db.GetContext(ctx, &got, "PRAGMA user_version")); err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	if wrong != "" || got != version {
		return fmt.Errorf("the copy is damaged (%s, schema %d)", wrong, got)
	}
	return nil
}

// dropCopy removes a copy that no upgrade has followed.
func (s *Store) dropCopy() error {
	part := asideName(s.path, s.upgrades.version()) + asidePart
	if err := errors.Join(disk.Remove(part), disk.Remove(part+"-journal")); err != nil {
		return fmt.Errorf("remove a copy that was cut off: %w", err)
	}
	return nil
}

// nameCopy gives the copy its name, now that the upgrade is durable; an older copy keeps its own. It returns the name,
// empty where there is no copy to name.
func (s *Store) nameCopy() (string, error) {
	base := asideName(s.path, s.upgrades.version())
	if !exists(base + asidePart) {
		return "", nil
	}
	name := base
	for n := 2; exists(name); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	if err := errors.Join(os.Rename(base+asidePart, name), syncDir(filepath.Dir(name))); err != nil {
		return "", fmt.Errorf("name the copy of before the upgrade: %w", err)
	}
	return name, nil
}

// newer refuses a file of a later version, and names what that has set aside for going back.
func (u upgrades) newer(path string, found int64) error {
	mend := "restore a backup that this version has written"
	for n := u.version() + 1; n <= found; n++ {
		if name := asideName(path, n); exists(name) {
			mend = fmt.Sprintf("go back to the copy that was set aside before: remove %s-wal, if it is there, and move %s to %s (what came later is not in it)", path, name, path)
			break
		}
	}
	return fmt.Errorf("%w: %s has schema %d and this binary knows %d; run the newer binary, or %s", ErrNewerSchema, path, found, u.version(), mend)
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

func syncFile(name string) error {
	f, err := disk.OpenOwn(name, os.O_RDWR)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
