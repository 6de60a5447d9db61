package sqlite

import (
	"crypto/rand"
	"errors"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/keyhook/keyhook/storage/disk"
)

// reserve is a file beside the database that only takes up space. When the disk is full, the writer removes the file, so that
// writes with Work.Reserve find room. Until the disk has room for the file again, no other write runs.
type reserve struct {
	name  string
	bytes int64       // 0 if there is no reserve
	spent atomic.Bool // changed under writer.writing
	most  int64       // how long the database may become while the reserve is in use
	room  int64       // for the log

	writes   map[int64]int64 // in the log since its last checkpoint, by payer
	total    int64           // of writes
	isCopied atomic.Bool     // a checkpoint has copied the whole log into the database, so the next write takes no room
}

// bytesOfWrite is about what a write takes of the reserve: measured 14 to 25 KB for a revocation.
const bytesOfWrite = 24 << 10

// serves reports whether a payer may write on the reserve. It may have as many writes as then remain for the others, so that no payer
// uses up the reserve. Without any room, one write may still fit into the log.
func (r *reserve) serves(payer int64) bool {
	if r.isCopied.Swap(false) {
		r.total = 0
		clear(r.writes)
	}
	return r.writes[payer] < max(r.room/bytesOfWrite, 1)-r.total
}

// hold makes the file, unless it exists. It writes random bytes, because some file systems store zeros without using space.
func (r *reserve) hold() error {
	if r.bytes == 0 {
		return nil
	}
	if info, err := os.Lstat(r.name); err == nil && disk.IsOwn(r.name) && info.Size() == r.bytes {
		return nil
	}
	if err := disk.Remove(r.name); err != nil {
		return err
	}
	f, err := disk.Create(r.name)
	if err != nil {
		return err
	}
	content := make([]byte, r.bytes)
	rand.Read(content)
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(disk.Advise(r.name, err), disk.Remove(r.name)) // a part of it would only take space away
	}
	return nil
}

// makeRoom removes the reserve before the start on a full disk, where SQLite could not make the index of its log. holdReserve makes
// it again if there is room.
func (f *File) makeRoom() {
	if free, known := f.Free(); f.o.Reserve > 0 && known && free < lowReserve && disk.IsOwn(f.o.Path+disk.Reserve) {
		f.o.Logger.Warn("the disk is full: the start uses the reserve", "file", f.o.Path+disk.Reserve, "error", disk.Remove(f.o.Path+disk.Reserve))
	}
}

// holdReserve makes the reserve at the start. A disk without room for it is no reason to refuse the start, but then the start goes on
// like a process that has used the reserve: otherwise other writes would take the room that is left.
func (f *File) holdReserve() {
	f.reserve.name, f.reserve.bytes, f.reserve.writes = f.o.Path+disk.Reserve, f.o.Reserve, map[int64]int64{}
	err := f.reserve.hold()
	if err == nil {
		return
	}
	f.o.Logger.Warn("the reserve for a full disk cannot be made, so a key may not be revocable when the disk is full; "+
		"free a few megabytes on the disk of storage.path, or correct the rights of its directory and restart",
		"file", f.reserve.name, "bytes", f.reserve.bytes, "error", err)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		f.useReserve()
		f.failures.note(byCommit, errSpent)
	}
}

// spendReserve removes the file. It reports whether there was one.
func (f *File) spendReserve() bool {
	r := &f.reserve
	if r.bytes == 0 || r.spent.Load() || !disk.Exists(r.name) {
		return false
	}
	if err := disk.Remove(r.name); err != nil {
		f.o.Logger.Error("the disk is full, and the reserve cannot be removed", "file", r.name, "error", err)
		return false
	}
	f.o.Logger.Warn("the disk is full: the reserve is used for writes that withdraw rights, and no other write runs until there is free space",
		"file", r.name, "bytes", r.bytes)
	f.useReserve()
	return true
}

// useReserve lets only writes run that withdraw rights. The database may grow by an eighth of the room, and the log has the rest.
func (f *File) useReserve() {
	r := &f.reserve
	room := r.bytes
	if free, known := f.Free(); known {
		room = min(room, int64(free))
	}
	size, _ := fileSize(f.o.Path) // 0 after an error, and then it may not grow
	r.most, r.room = size+room/8, room-room/8
	r.isCopied.Store(true)
	r.spent.Store(true)
}

// isMissing reports whether somebody may have removed the file, for example to make room on a full disk.
func (r *reserve) isMissing() bool { return r.bytes > 0 && !disk.Exists(r.name) }

// holdReserveAgain makes the reserve again once the disk has room, and lets all writes run.
func (f *File) holdReserveAgain() {
	f.writing.Lock()
	defer f.writing.Unlock()
	free, known := f.Free()
	if !f.reserve.spent.Load() && !f.reserve.isMissing() || known && free < uint64(f.reserve.bytes)+lowReserve {
		return
	}
	if f.reserve.hold() == nil {
		f.reserve.spent.Store(false)
	}
}

// lowReserve is how much more than the reserve must be free before all writes run again.
const lowReserve = 4 * probeSize

// errSpent refuses a write while the reserve is in use.
var errSpent = errors.New("the disk is full, and only writes that withdraw rights run")
