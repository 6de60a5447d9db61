package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// An upgrade makes a copy first, for going back to the binary of before: PATH.before-vN holds the file as it was before it
// got schema N. The copy ends in copyPart until the upgrade is durable. A copy of that name beside an old file is from an
// upgrade that was cut off, and is made again.
const copyPart = ".part"

func upgradeCopy(path string, version int64) string {
	return fmt.Sprintf("%s.before-v%d", path, version)
}

func (s *Store) upgradeCopy() string { return upgradeCopy(s.path, s.upgrades.version()) }

// copyBefore makes a copy of the file, and checks it.
func (s *Store) copyBefore(ctx context.Context) (err error) {
	if err := s.dropCopy(); err != nil {
		return err
	}
	file, err := disk.Create(s.upgradeCopy() + copyPart)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.dropCopy())
		}
	}()
	if err := file.Close(); err != nil {
		return err
	}
	from, err := openSource(ctx, s.path)
	if err != nil {
		return err
	}
	err = errors.Join(from.snapshot(ctx, file.Name()), from.close())
	if err != nil {
		return err
	}
	return verifyCopy(ctx, file.Name(), s.outdated)
}

// verifyCopy reads a copy whole.
func verifyCopy(ctx context.Context, path string, version int64) (err error) {
	db, err := openCopy(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var got int64
	if err := errors.Join(checkCopy(ctx, db, path), db.GetContext(ctx, &got, "PRAGMA user_version")); err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	if got != version {
		return fmt.Errorf("the copy has schema %d", got)
	}
	return nil
}

// dropCopy removes a copy that no upgrade has followed.
func (s *Store) dropCopy() error {
	if err := removeDatabase(s.upgradeCopy() + copyPart); err != nil {
		return fmt.Errorf("remove a copy that was cut off: %w", err)
	}
	return nil
}

// nameCopy gives the copy its name, now that the upgrade is durable; an older copy keeps its own. It returns the name,
// empty where there is no copy to name.
func (s *Store) nameCopy() (string, error) {
	base := s.upgradeCopy()
	if !exists(base + copyPart) {
		return "", nil
	}
	name := base
	for n := 2; exists(name); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	if err := errors.Join(os.Rename(base+copyPart, name), syncDir(filepath.Dir(name))); err != nil {
		return "", fmt.Errorf("name the copy of before the upgrade: %w", err)
	}
	return name, nil
}

// newer refuses a file of a later version, and names what that has set aside for going back.
func (u upgrades) newer(path string, found int64) error {
	mend := "restore a backup that this version has written"
	for n := u.version() + 1; n <= found; n++ {
		if name := upgradeCopy(path, n); exists(name) {
			mend = fmt.Sprintf("go back to the copy that was set aside before: remove %s-wal, if it is there, and move %s to %s (what came later is not in it)", path, name, path)
			break
		}
	}
	return fault.Advise(fmt.Errorf("%w: %s has schema %d and this binary knows %d", ErrNewerSchema, path, found, u.version()),
		"run the newer binary, or %s", mend)
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
