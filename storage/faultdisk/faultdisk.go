// Package faultdisk owns a disk for tests that can fail and lose power on demand. It does not know what is stored. It
// stands between SQLite and the real file system, for every database that the process opens.
//
// Only tests import it. It uses internal names of the driver that may change without notice. Expect work here when the
// driver changes.
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

// Fault makes operations fail.
type Fault struct {
	Op   Op
	File string // suffix of the file names, such as "-wal" or ".db"; empty: all files
	From int    // the first operation that fails, counted from 1; 0 is 1
	Once bool   // only that operation fails
	Code int32  // the code that SQLite gets: sqlite.org/rescode.html
}

// disk is the state of the only disk.
var disk struct {
	sync.Mutex
	fault   *Fault
	seen    int // operations that match the fault
	hits    int
	tracked bool
	files   map[string]*file    // by path
	open    map[address]opened  // by SQLite's handle
	tables  map[address]address // our method tables by the system's; databases and logs have different ones
}

// Break makes operations fail from now on. It replaces an earlier fault.
func Break(f Fault) {
	disk.Lock()
	defer disk.Unlock()
	f.From = max(f.From, 1)
	disk.fault, disk.seen, disk.hits = &f, 0, 0
}

// Mend ends the fault and returns how many operations have failed.
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

// faultFor returns the code of the fault if it matches this operation, otherwise 0. The caller holds the lock.
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

// begin returns an open file, and the code of the fault if it matches this operation.
func begin(op Op, handle address) (opened, int32) {
	disk.Lock()
	defer disk.Unlock()
	f := disk.open[handle]
	return f, faultFor(op, f.path)
}
