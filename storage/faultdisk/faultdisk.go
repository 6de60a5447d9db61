// Package faultdisk owns a disk for tests that fails on demand and loses its power on demand. It stands between SQLite and
// the real file system, for every database that the process opens. It knows nothing of what is stored.
//
// It is imported by tests only. It goes beneath the driver, into names that no promise of compatibility covers: expect work
// here when the driver changes.
package faultdisk

import (
	"strings"
	"sync"
)

// Op is an operation that can fail.
type Op int

// The operations.
const (
	Open Op = iota
	Read
	Write
	Sync
	Truncate
)

// Fault has operations fail.
type Fault struct {
	Op   Op
	File string // the end of the names of the files that it is about: "-wal", ".db"; empty is all
	From int    // the first operation that fails, counted from 1; 0 is 1
	Once bool   // no other fails
	Code int32  // what SQLite is told: sqlite.org/rescode.html
}

// disk is the state of the one disk that there is.
var disk struct {
	sync.Mutex
	fault   *Fault
	seen    int // operations that the fault might be about
	hits    int
	tracked bool
	files   map[string]*file  // by path
	open    map[uintptr]*file // by SQLite's handle
}

// Break has operations fail from now on, and forgets an earlier fault.
func Break(f Fault) {
	disk.Lock()
	defer disk.Unlock()
	f.From = max(f.From, 1)
	disk.fault, disk.seen, disk.hits = &f, 0, 0
}

// Mend ends what Break began, and returns how many operations have failed.
func Mend() (hits int) {
	disk.Lock()
	defer disk.Unlock()
	disk.fault = nil
	return disk.hits
}

// Hits returns how many operations have failed since Break.
func Hits() int {
	disk.Lock()
	defer disk.Unlock()
	return disk.hits
}

// strikes returns the code of the fault where it is about this operation; 0 where none is. The lock is held.
func faultFor(op Op, path string) int32 {
	f := disk.fault
	if f == nil || f.Op != op || !strings.HasSuffix(path, f.File) {
		return 0
	}
	if disk.seen++; disk.seen < f.From || f.Once && disk.seen > f.From {
		return 0
	}
	disk.hits++
	return f.Code
}

// struck is strikes for a handle, by which SQLite names an open file.
func faultForHandle(op Op, handle uintptr) int32 {
	disk.Lock()
	defer disk.Unlock()
	path := ""
	if f := disk.open[handle]; f != nil {
		path = f.path
	}
	return faultFor(op, path)
}
