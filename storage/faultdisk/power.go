package faultdisk

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// sector is the unit that a disk writes at once.
const sector = 512

// file has the flushed content of a file and the changes that are not flushed.
type file struct {
	path    string // empty for a temporary file, whose changes are not recorded
	durable []byte
	pending []change
}

// change is a write that is not flushed, or a truncation if bytes is nil.
type change struct {
	at    int64
	bytes []byte
}

// Track makes the disk record flushed and unflushed changes of files that are opened from now on. Track(false) forgets all of it.
func Track(on bool) {
	disk.Lock()
	defer disk.Unlock()
	disk.tracked = on
	clear(disk.files)
}

// Cut writes what a power failure would leave of the files in one directory into another directory. That is everything
// flushed, and random sectors of the rest. New file names always survive.
func Cut(from, to string, chance *rand.Rand) error {
	disk.Lock()
	defer disk.Unlock()
	var errs []error
	for path, f := range disk.files {
		if filepath.Dir(path) != from || strings.HasSuffix(path, "-shm") {
			continue
		}
		left := append([]byte(nil), f.durable...)
		for _, c := range f.pending {
			left = c.applyPartly(left, chance)
		}
		errs = append(errs, os.WriteFile(filepath.Join(to, filepath.Base(path)), left, 0o600))
	}
	return errors.Join(errs...)
}

// applyPartly makes a random part of a change.
func (c change) applyPartly(content []byte, chance *rand.Rand) []byte {
	if c.bytes == nil {
		if chance.IntN(2) == 0 {
			return c.apply(content)
		}
		return content
	}
	for at := 0; at < len(c.bytes); at += sector {
		if chance.IntN(2) == 0 {
			content = change{c.at + int64(at), c.bytes[at:min(at+sector, len(c.bytes))]}.apply(content)
		}
	}
	return content
}

func (c change) apply(content []byte) []byte {
	if c.bytes == nil {
		return content[:min(int64(len(content)), c.at)]
	}
	if missing := c.at + int64(len(c.bytes)) - int64(len(content)); missing > 0 {
		content = append(content, make([]byte, missing)...)
	}
	copy(content[c.at:], c.bytes)
	return content
}

func (f *file) noteWrite(c change) {
	disk.Lock()
	defer disk.Unlock()
	if disk.tracked && f.path != "" {
		f.pending = append(f.pending, c)
	}
}

// noteFlush records that all changes of a file are flushed. It reports whether the disk records changes of that file.
func (f *file) noteFlush() bool {
	disk.Lock()
	defer disk.Unlock()
	if !disk.tracked || f.path == "" {
		return false
	}
	for _, c := range f.pending {
		f.durable = c.apply(f.durable)
	}
	f.pending = nil
	return true
}
