package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/seal"
)

// keyFile holds the key that nobody configured. It has one key a line: one, except where a change of the key was cut off or
// an operator has added an old key to restore a backup. The database tells which of them it is sealed with.
//
// It gets its name only once the database that it belongs to is there. Until then its name ends in disk.FreshKey, so a first
// start that was cut off is not taken for a database that was lost.
type keyFile struct {
	name  string
	fresh bool
}

func (f keyFile) path() string {
	if f.fresh {
		return strings.TrimSuffix(f.name, disk.Key) + disk.FreshKey
	}
	return f.name
}

// read returns the keys, at least one of them. The error is os.ErrNotExist where there is no file.
func (f keyFile) read() ([]seal.Key, error) {
	file, err := disk.OpenRegular(f.path())
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, keyFileLimit))
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, disk.Explain(f.path(), err)
	}
	var keys []seal.Key
	lines := strings.Fields(string(text))
	for i, line := range lines {
		key, err := seal.ParseKey(line)
		if err != nil {
			return nil, fault.Advise(fmt.Errorf("%w: line %d of %s is not an encryption key", ErrKey, i+1, f.path()),
				"put it back from your copy of it")
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fault.Advise(fmt.Errorf("%w: %s is empty", ErrKey, f.path()), "put it back from your copy of it")
	}
	return keys, nil
}

// keyFileLimit is more bytes than any key file has.
const keyFileLimit = 64 << 10

// write replaces what the file holds, if it holds anything: after a crash it has the old keys or the new ones. It returns
// once they are on the disk, so that they can be sealed with. The keys go into a file that it makes itself: a file that
// was there before could be open to others.
func (f keyFile) write(keys ...seal.Key) error {
	var text strings.Builder
	for _, k := range keys {
		text.WriteString(k.Reveal() + "\n")
	}
	part := f.path() + ".part"
	if err := disk.Remove(part); err != nil { // a run that was cut off has left it
		return err
	}
	file, err := disk.Create(part)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text.String())
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = errors.Join(os.Rename(part, f.path()), disk.SyncDir(filepath.Dir(part)))
	}
	if err != nil {
		return fmt.Errorf("write key file: %w", errors.Join(disk.Explain(part, err), disk.Remove(part)))
	}
	return nil
}

// keep gives a fresh key file its name, now that its database is there.
func (f keyFile) keep() error {
	if !f.fresh {
		return nil
	}
	if err := errors.Join(os.Rename(f.path(), f.name), disk.SyncDir(filepath.Dir(f.name))); err != nil {
		return fmt.Errorf("name key file: %w", err)
	}
	return nil
}

// oldKey is the name of the file that reduce moves the key of that id to.
func (f keyFile) oldKey(id string) string { return f.name + "." + id }

// reduce leaves one key in the file, or no file where that key is not in it. It moves each other key to a file of its own
// that is named for it, because backups of before cannot be read without it. It returns the names of those files.
func (f keyFile) reduce(to seal.Key) (moved []string, err error) {
	keys, err := f.read()
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if k.ID() == to.ID() {
			continue
		}
		name := f.oldKey(k.ID())
		if err := (keyFile{name: name}).write(k); err != nil {
			return nil, err
		}
		moved = append(moved, name)
	}
	if len(moved) == 0 {
		return nil, nil
	}
	if slices.ContainsFunc(keys, func(k seal.Key) bool { return k.ID() == to.ID() }) {
		return moved, f.write(to)
	}
	if err := errors.Join(os.Remove(f.path()), disk.SyncDir(filepath.Dir(f.path()))); err != nil {
		return nil, fmt.Errorf("remove key file: %w", err)
	}
	return moved, nil
}
