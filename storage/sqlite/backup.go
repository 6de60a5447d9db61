package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/sqlite/ownership"
)

// Backup makes a consistent copy of a database. The copy gets its name after it is checked and on the disk. A server
// may run meanwhile. Backup refuses with ErrForeignFile, backup.ErrExists, backup.ErrRunning, ErrNoSpace, ErrDamaged,
// or a file system's error. A failure to remove older copies is a Report.Warning. c.Inspect fills in Report.Contents.
//
// As root, the process reads with the rights of the owner of the database. It writes with the rights of the owner of the
// copy's directory (see disk.Locate).
func Backup(ctx context.Context, o backup.Options, c Copies) (backup.Report, error) {
	r := backup.Report{CreatedAt: time.Now().UnixMilli()}
	begin := time.Now()
	path, reader, err := disk.Resolve(o.Path)
	if err != nil {
		return r, err
	}
	to, err := o.Destination(path, begin)
	if err != nil {
		return r, err
	}
	r.Database, r.File = path, to.File
	var from *source
	err = reader.Do(func() (err error) {
		from, err = openDatabase(ctx, path)
		return err
	})
	if err != nil {
		return r, err
	}
	err = to.Write(&r,
		func(dir string) error { return requireSpace(from, dir, "name another directory") },
		func(name string) error {
			if err := from.snapshot(ctx, name); err != nil {
				return err
			}
			return c.check(ctx, name)
		})
	err = errors.Join(err, reader.Do(from.db.Close))
	r.Took = time.Since(begin)
	return r, err
}

// openDatabase opens the database to copy. It refuses a file that is no database of ours, or is in use by another name.
func openDatabase(ctx context.Context, path string) (*source, error) {
	if size, err := fileSize(path); err == nil && size > 0 {
		if err := ownership.CheckOtherNames(path); err != nil {
			return nil, err
		}
		if _, err := readHeader(path); err != nil {
			return nil, err
		}
	}
	return openSource(ctx, path)
}
