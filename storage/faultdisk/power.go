package faultdisk

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// sector is what a disk writes at once.
const sector = 512

// file is what the disk holds of a file, and what has only been handed to it.
type file struct {
	path    string
	durable []byte
	pending []change
}

// change is a write that was not flushed yet, or where bytes is nil a truncation.
type change struct {
	at    int64
	bytes []byte
}

// Track has the disk remember, of the files that are opened from now on, what was flushed and what was not. With false it
// forgets all of it.
func Track(on bool) {
	disk.Lock()
	defer disk.Unlock()
	disk.tracked = on
	if !on {
		for _, f := range disk.files {
			f.durable, f.pending = nil, nil
		}
		clear(disk.files)
	}
}

// Cut writes into a directory what the files of another directory hold if the power fails now: all that was flushed and,
// of the rest, any sectors by chance. Names of files last as soon as they are given.
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

// partly makes some of a change.
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

// apply makes a change.
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

// handed notes a change that was handed to the disk.
func noteWrite(handle uintptr, c change) {
	disk.Lock()
	defer disk.Unlock()
	if f := disk.open[handle]; disk.tracked && f != nil {
		f.pending = append(f.pending, c)
	}
}

// flushed notes that all that was handed over is on the disk.
func noteFlush(handle uintptr) {
	disk.Lock()
	defer disk.Unlock()
	f := disk.open[handle]
	if f == nil {
		return
	}
	for _, c := range f.pending {
		f.durable = c.apply(f.durable)
	}
	f.pending = nil
}
