package backup

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// ErrExists refuses a name that is taken. It is wrapped with the name.
var ErrExists = errors.New("file exists already")

// Options name a database and its copy.
type Options struct {
	Path    string // of the database, whether a server has it open or not
	To      string // the copy, or a directory for it; if empty, the directory "backups" beside the database
	Name    string // of a copy in a directory; if empty, a dated name
	KeySet  bool   // the encryption key is a setting, whatever the key file has
	Replace bool   // replace an existing file; otherwise ErrExists
	Keep    int    // how many dated copies the directory keeps, this one included; 0 keeps all
}

// Destination is the place of a copy that is to be made.
type Destination struct {
	File     string // the final name, absolute
	database string // its file name
	writer   disk.User
	options  Options
}

// Destination returns the place of the copy that is made at the given time. path is o.Path with links resolved.
func (o Options) Destination(path string, at time.Time) (Destination, error) {
	d := Destination{database: filepath.Base(path), options: o}
	to := cmp.Or(o.To, filepath.Join(filepath.Dir(path), "backups"))
	dir, writer, err := disk.Locate(to)
	if err != nil {
		return d, err
	}
	if info, err := os.Lstat(dir); o.To == "" || err == nil && info.IsDir() {
		d.File, d.writer = filepath.Join(dir, cmp.Or(o.Name, Name(d.database, at))), writer
		return d, checkReplaceable(dir, path, writer)
	}
	if o.Keep > 0 {
		return d, fault.Advise(fmt.Errorf("%s is not a directory, and old backups are removed from a directory only", to), "give an existing directory")
	}
	// Do not follow a link at the name of the copy: the copy would replace its target.
	if dir, d.writer, err = disk.Locate(filepath.Dir(to)); err != nil {
		return d, err
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return d, fault.Advise(fmt.Errorf("there is no directory %s", filepath.Dir(to)), "create it first")
	}
	d.File = filepath.Join(dir, filepath.Base(to))
	if err := checkReplaceable(dir, path, d.writer); err != nil {
		return d, err
	}
	if d.File == path || disk.IsBeside(d.File) || disk.Exists(d.File) && disk.Exists(d.File+disk.Lock) {
		return d, fault.Advise(fmt.Errorf("%w: %s belongs to a database", ErrExists, d.File), "name another file")
	}
	return d, nil
}

// checkReplaceable refuses a directory in which others could replace a copy while root writes it. Beside the database they
// could replace the database as well, so nothing is gained by a refusal there.
func checkReplaceable(dir, database string, writer disk.User) error {
	if beside := filepath.Dir(database); dir == beside || strings.HasPrefix(dir, beside+"/") {
		return nil
	}
	return writer.CheckReplaceable(dir)
}

// makeDirectory makes the default directory of copies if it is missing.
func makeDirectory(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the directory of backups: %w", disk.Advise(dir, err))
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return fault.Advise(fmt.Errorf("%w: backups go to %s, which is not a directory", disk.ErrAccess, dir), "move it away")
	}
	return nil
}

// Write makes the copy, with the rights of the owner of its directory. prepare may refuse the directory. fill writes a checked
// copy into the empty file of the given name. The copy gets its final name after that. Write describes it in r, and then
// removes older copies. A failure to remove them is a warning of r.
func (d Destination) Write(r *Report, prepare func(dir string) error, fill func(name string) error) error {
	return d.writer.Do(func() error {
		dir := filepath.Dir(d.File)
		if d.options.To == "" {
			if err := makeDirectory(dir); err != nil {
				return err
			}
		}
		if err := d.checkName(); err != nil {
			return err
		}
		if err := d.publish(r, func(name string) error { // the claim has removed what a killed backup left, which may be large
			if err := prepare(dir); err != nil {
				return err
			}
			return fill(name)
		}); err != nil {
			return err
		}
		var err error
		if r.Removed, err = prune(d.File, d.database, d.options.Keep); err != nil {
			r.Warning = fmt.Sprintf("the copy is made, but older ones could not be removed: %v", err)
		}
		return nil
	})
}

func (d Destination) publish(r *Report, fill func(name string) error) error {
	dir := filepath.Dir(d.File)
	temp, err := claim(filepath.Join(dir, d.database+disk.Partial))
	if err != nil {
		return err
	}
	defer temp.Close() // releases the claim last
	published := false
	defer func() {
		if !published {
			_ = errors.Join(disk.Remove(temp.Name()), disk.Remove(temp.Name()+disk.Journal)) // if this fails, the next run removes them
		}
	}()
	if err := fill(temp.Name()); err != nil {
		return err
	}
	sum := sha256.New()
	if r.Bytes, err = io.Copy(sum, io.NewSectionReader(temp, 0, math.MaxInt64)); err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	r.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if err := d.checkName(); err != nil { // the file may exist by now
		return err
	}
	if err := rename(temp, d.File); err != nil {
		return fmt.Errorf("name the copy: %w", err)
	}
	published = true
	if err := disk.SyncDir(dir); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// checkName refuses a final name that is taken, unless it is the name of a regular file that is to be replaced.
func (d Destination) checkName() error {
	switch info, err := os.Lstat(d.File); {
	case err == nil && d.options.Replace && !info.Mode().IsRegular(): // such as /dev/null, which every program needs
		return fault.Advise(fmt.Errorf("%w: %s is not a regular file", ErrExists, d.File), "name another file")
	case d.options.Replace, errors.Is(err, os.ErrNotExist):
		return nil
	case err == nil:
		return fmt.Errorf("%w: %s", ErrExists, d.File)
	default:
		return disk.Advise(d.File, err)
	}
}
