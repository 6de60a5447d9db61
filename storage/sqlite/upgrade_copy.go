package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/keyhook/keyhook/storage/disk"
)

// An upgrade makes a copy first, for going back to the binary of before: PATH.before-vN holds the file as it was before it
// got schema N. The copy ends in copyPart until the upgrade is durable. A copy of that name beside an old file is from an
// upgrade that was cut off, and is made again.
const copyPart = ".part"

func upgradeCopy(path string, version int64) string {
	return fmt.Sprintf("%s.before-v%d", path, version)
}

func (f *File) upgradeCopy() string { return upgradeCopy(f.o.Path, f.o.version()) }

// copyBefore makes a copy of the file, and checks it.
func (f *File) copyBefore(ctx context.Context) (err error) {
	if err := f.dropCopy(); err != nil {
		return err
	}
	file, err := disk.Create(f.upgradeCopy() + copyPart)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.dropCopy())
		}
	}()
	if err := file.Close(); err != nil {
		return err
	}
	from, err := openSource(ctx, f.o.Path)
	if err != nil {
		return err
	}
	if err := errors.Join(from.snapshot(ctx, file.Name()), from.close()); err != nil {
		return err
	}
	return Copies{Version: f.outdated}.check(ctx, file.Name())
}

// dropCopy removes a copy that no upgrade has followed.
func (f *File) dropCopy() error {
	if err := removeDatabase(f.upgradeCopy() + copyPart); err != nil {
		return fmt.Errorf("remove a copy that was cut off: %w", err)
	}
	return nil
}

// nameCopy gives the copy its name, now that the upgrade is durable; an older copy keeps its own. It returns the name,
// empty where there is no copy to name.
func (f *File) nameCopy() (string, error) {
	base := f.upgradeCopy()
	if !disk.Exists(base + copyPart) {
		return "", nil
	}
	name := base
	for n := 2; disk.Exists(name); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	if err := errors.Join(os.Rename(base+copyPart, name), disk.SyncDir(filepath.Dir(name))); err != nil {
		return "", fmt.Errorf("name the copy of before the upgrade: %w", err)
	}
	return name, nil
}

// newer refuses a file of a later version, and names the copy that the later version has made before its upgrade.
func (o Options) newer(found int64) error {
	path := o.Path
	mend := "restore a backup that this version has written"
	for n := o.version() + 1; n <= found; n++ {
		if name := upgradeCopy(path, n); disk.Exists(name) {
			mend = fmt.Sprintf("go back to the copy that was made before the upgrade: remove %s-wal, if it is there, and move %s to %s (what came later is not in it)", path, name, path)
			break
		}
	}
	return fmt.Errorf("%w: %s has schema %d and this binary knows %d; run the newer binary, or %s", ErrNewerSchema, path, found, o.version(), mend)
}
