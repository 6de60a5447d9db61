package sqlite

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

const (
	watchInterval = time.Second
	probeLimit    = 5 * time.Second
	probeSize     = 16 << 10 // bytes; a disk with less room counts as full
)

// fileIdentity is a file as it was when it was opened. While it is open, no other file can get its inode number.
type fileIdentity struct {
	name string
	info os.FileInfo
}

func (f *File) remember() error {
	for _, name := range []string{f.o.Path, f.o.Path + disk.WAL, f.o.Path + disk.Lock} {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		f.names = append(f.names, fileIdentity{name, info})
	}
	return nil
}

// lost reports whether one of our files was removed or replaced, and stops the file then. SQLite would go on writing to it, and that
// data is lost when the process ends. So lost is called after every commit, before the callers are told that their data is kept.
func (f *File) lost() bool {
	for _, known := range f.names {
		info, err := os.Stat(known.name)
		switch {
		case err != nil:
			err = fmt.Errorf("%s was removed beneath the running process: %w", known.name, fault.WithoutPath(err))
		case !os.SameFile(info, known.info):
			err = fmt.Errorf("%s was replaced beneath the running process", known.name)
		default:
			continue
		}
		if f.failures.fail(err) {
			f.renameLog()
		}
		return true
	}
	return false
}

// renameLog renames the write-ahead log if another file was put in the place of ours. The next process would apply the log to that file.
func (f *File) renameLog() {
	database, log := f.names[0], f.names[1]
	inPlace, err := os.Stat(database.name)
	if err != nil || os.SameFile(inPlace, database.info) {
		return
	}
	if left, err := os.Stat(log.name); err != nil || !os.SameFile(left, log.info) {
		return
	}
	if err := os.Rename(log.name, log.name+".orphan"); err != nil {
		f.o.Logger.Error("the write-ahead log of the file that was replaced could not be renamed; move it away before the next start", "file", log.name, "error", err)
		return
	}
	f.o.Logger.Warn("the write-ahead log of the file that was replaced was renamed", "file", log.name+".orphan")
}

// watch checks the file once a second until ctx ends. It checks the names of the files, makes checkpoints, and tests
// whether a problem is over.
func (f *File) watch(ctx context.Context, drain Drain) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	low := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if f.lost() {
			return
		}
		err := f.checkpoint(ctx, drain)
		if ctx.Err() != nil {
			return
		}
		f.failures.note(byCheckpoint, err)
		f.watchLog()
		degraded := f.failures.degraded()
		if degraded || f.reserve.isMissing() {
			f.holdReserveAgain()
		}
		if degraded {
			if err == nil {
				f.failures.heal(byCheckpoint)
			}
			f.probe(ctx)
		}
		free, known := f.Free()
		wasLow := low
		if low = known && free < disk.LowSpace; low && !wasLow {
			f.o.Logger.Warn("the disk of storage.path is nearly full; free some space before writes fail", "free_bytes", free)
		}
	}
}

// probe writes probeSize bytes, and ends the problem that commits have found if that succeeds. The success of other commits is
// no proof: some write next to nothing, and an idle file has none.
func (f *File) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	err := f.Write(ctx, Work{}, func(t *Tx) error { return f.o.Probe(t, probeSize) })
	if err == nil { // otherwise the writer has recorded it
		f.failures.heal(byCommit)
	}
}
