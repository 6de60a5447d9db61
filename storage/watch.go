package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/keyhook/keyhook/storage/disk"
)

const (
	watchInterval = time.Second
	probeLimit    = 5 * time.Second
	probeSize     = 16 << 10 // bytes: room for less than this is no room
	lowSpace      = 256 << 20
)

// identity is a file as it was when the store was opened. While that is held open, no other file gets its number.
type identity struct {
	name string
	info os.FileInfo
}

// remember notes which files are ours.
func (s *Store) remember() error {
	for _, name := range []string{s.path, s.path + disk.WAL, s.path + disk.Lock} {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		s.files = append(s.files, identity{name, info})
	}
	return nil
}

// intact reports whether our files still stand under their names. SQLite goes on writing to a file that was removed or
// replaced, and what it writes is gone with the process.
func (s *Store) intact() error {
	for _, f := range s.files {
		info, err := os.Stat(f.name)
		if err != nil {
			if at, ok := errors.AsType[*fs.PathError](err); ok {
				err = at.Err
			}
			return fmt.Errorf("%s was removed beneath the running process: %w", f.name, err)
		}
		if !os.SameFile(info, f.info) {
			return fmt.Errorf("%s was replaced beneath the running process", f.name)
		}
	}
	return nil
}

// lost reports whether our files no longer stand under their names, and has the store stop then. It is asked after every
// commit, before anybody is told that something is kept.
func (s *Store) lost() bool {
	err := s.intact()
	if err == nil {
		return false
	}
	if s.condition.fail(err) {
		s.setAside()
	}
	return true
}

// setAside takes the write-ahead log away from a file that was put in the place of ours: the next process would take it for
// that file's, and fold one into the other.
func (s *Store) setAside() {
	database, log := s.files[0], s.files[1]
	inPlace, err := os.Stat(database.name)
	if err != nil || os.SameFile(inPlace, database.info) {
		return
	}
	if left, err := os.Stat(log.name); err != nil || !os.SameFile(left, log.info) {
		return
	}
	if err := os.Rename(log.name, log.name+".orphan"); err != nil {
		s.log.Error("the write-ahead log of the file that was replaced could not be set aside; move it away before the next start", "file", log.name, "error", err)
		return
	}
	s.log.Warn("the write-ahead log of the file that was replaced was set aside", "file", log.name+".orphan")
}

// watch looks at the file once a second, until ctx ends: whether it is still there, whether the write-ahead log can be
// folded back, and whether what ails it is over.
func (s *Store) watch(ctx context.Context) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	low := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.lost() {
			return
		}
		err := s.checkpoint(ctx)
		if ctx.Err() != nil {
			return
		}
		s.condition.note(byCheckpoint, err)
		s.watchLog()
		if s.condition.ailing.Load() {
			if err == nil {
				s.condition.heal(byCheckpoint)
			}
			s.probe(ctx)
		}
		free, known := s.Free()
		if isLow := known && free < lowSpace; isLow != low {
			low = isLow
			if low {
				s.log.Warn("the disk of storage.path is nearly full; make room before nothing can be written", "free_bytes", free)
			}
		}
	}
}

// probe writes something of some size, and ends what commits have found where that is durable. Their own success would
// not tell: some write next to nothing, and where nobody writes there are none.
func (s *Store) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	err := s.write(ctx, func(t *tx) error {
		// Other bytes than the last time, or nothing would be written.
		value := bytes.Repeat(binary.BigEndian.AppendUint64(nil, uint64(t.now)), probeSize/8)
		_, err := t.exec("INSERT INTO instance (name, value) VALUES ('probe', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", value)
		return err
	})
	if err == nil { // else the writer has noted it
		s.condition.heal(byCommit)
	}
}

// Free returns how many bytes can still be written to the disk of the database; ok is false where nobody can tell.
func (s *Store) Free() (bytes uint64, ok bool) {
	bytes, _, ok = disk.Free(s.path)
	return bytes, ok
}
