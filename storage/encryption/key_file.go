package encryption

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/seal"
)

// keyFile is the file with the key that Keyhook created itself. It has one key per line. More than one key is left by
// an interrupted Change, or by an operator who needs an old key for a restore. The database says which key is in use.
//
// The file gets its final name after the database exists. Until then its name ends in disk.FreshKey. So an interrupted
// first start is not mistaken for a lost database.
type keyFile struct {
	name  string
	isNew bool
}

func (f keyFile) path() string {
	if f.isNew {
		return strings.TrimSuffix(f.name, disk.Key) + disk.FreshKey
	}
	return f.name
}

// findKeyFile returns the key file of the database at path, under the name that it has now, and its keys. If there is none, the
// file is new, and the error is os.ErrNotExist.
func findKeyFile(path string) (f keyFile, keys []seal.Key, err error) {
	f.name = path + disk.Key
	if keys, err = f.read(); errors.Is(err, os.ErrNotExist) {
		f.isNew = true
		keys, err = f.read()
	}
	return f, keys, err
}

// read returns the keys, at least one. The error is os.ErrNotExist if there is no file.
func (f keyFile) read() ([]seal.Key, error) {
	file, err := disk.OpenRegular(f.path())
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, keyFileLimit))
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, disk.Advise(f.path(), err)
	}
	var keys []seal.Key
	lines := strings.Fields(strings.ReplaceAll(string(text), "=", "= ")) // a key ends in "=", and cat may have put one after it without a line break
	for i, line := range lines {
		key, err := seal.ParseKey(line)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d of %s is not an encryption key", ErrKey, i+1, f.path())
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: %s is empty", ErrKey, f.path())
	}
	return keys, nil
}

// LacksKey reports whether the key file of the database at path exists and does not have the key of that id. It returns false if the file
// cannot be read.
func LacksKey(path, id string) bool {
	f, keys, err := findKeyFile(path)
	return !f.isNew && (err == nil || errors.Is(err, ErrKey)) && !hasKey(keys, id)
}

func hasKey(keys []seal.Key, id string) bool {
	return slices.ContainsFunc(keys, func(k seal.Key) bool { return k.ID() == id })
}

// keyFileLimit is larger than any key file.
const keyFileLimit = 64 << 10

// write replaces the contents of the file. After a crash, the file has the old keys or the new ones. When write returns, the keys
// are on the disk and may be used. It creates a file of its own first, because others might be able to read an existing one.
func (f keyFile) write(keys ...seal.Key) error {
	var text strings.Builder
	for _, k := range keys {
		text.WriteString(k.Reveal() + "\n")
	}
	part := f.path() + ".part"
	if err := disk.Remove(part); err != nil { // an interrupted run may have left it
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
		return fmt.Errorf("write key file: %w", errors.Join(disk.Advise(part, err), disk.Remove(part)))
	}
	return nil
}

func (f keyFile) finalize() error {
	if !f.isNew {
		return nil
	}
	if err := errors.Join(os.Rename(f.path(), f.name), disk.SyncDir(filepath.Dir(f.name))); err != nil {
		return fmt.Errorf("name key file: %w", err)
	}
	return nil
}

// keepOnly removes all keys except one from the file, and deletes a file that does not have that key. It moves each
// removed key to a file of its own, because older backups need that key. It returns the names of those files.
func (f keyFile) keepOnly(to seal.Key) (moved []string, err error) {
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
		name := f.name + "." + k.ID()
		if err := (keyFile{name: name}).write(k); err != nil {
			return nil, err
		}
		moved = append(moved, name)
	}
	if len(moved) == 0 {
		return nil, nil
	}
	if hasKey(keys, to.ID()) {
		return moved, f.write(to)
	}
	if err := errors.Join(os.Remove(f.path()), disk.SyncDir(filepath.Dir(f.path()))); err != nil {
		return nil, fmt.Errorf("remove key file: %w", err)
	}
	return moved, nil
}
