package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/disk"
)

// LogBounds limit the size of the write-ahead log, in bytes. The zero value means 48 MiB and disk.LongLog.
type LogBounds struct {
	Restart int64 // above this size, the log is restarted
	Warn    int64 // above this size, the operator gets a warning
}

var defaultLogBounds = LogBounds{Restart: 48 << 20, Warn: disk.LongLog}

// checkpointer has the connection for checkpoints beside the writer, and the state of the write-ahead log.
type checkpointer struct {
	db        *sqlx.DB
	done      int64                              // the number of commits at the last checkpoint; used by watch only
	cuts      bool                               // see cutLog; used by watch only
	restartAt time.Time                          // earliest time of the next restart of the log; used by watch only
	logLong   atomic.Bool                        // the log is longer than LogBounds.Warn
	checking  atomic.Pointer[context.CancelFunc] // cancels the running check of a table
}

const (
	// frameSize is the size of a page in the write-ahead log: the page and a header of 24 bytes.
	frameSize = pageSize + 24
	pageSize  = 4096
	// pinnedFrames is how many frames may remain after a checkpoint before a long read is suspected. It is more than
	// the commits during one slice of a log.
	pinnedFrames = 4096
	// restartWait is how long RESTART waits for readers, in milliseconds. Commits wait for it.
	restartWait = "100"
	// drainWait is how long a restart waits for the end of long reads. New ones wait meanwhile.
	drainWait = 300 * time.Millisecond
	// restartPause is the pause after a failed restart, because each attempt delays commits.
	restartPause = 5 * time.Second
)

// checkpointed is the result of a checkpoint, in frames of the write-ahead log.
type checkpointed struct {
	Busy int   `db:"busy"`         // 1 if readers or a writer prevented a complete checkpoint
	Log  int64 `db:"log"`          // in the log
	Done int64 `db:"checkpointed"` // frames of the log that are in the database file too
}

// checkpoint copies the write-ahead log into the file, as far as readers permit. If the log is long, it restarts the log. The first
// checkpoint is PASSIVE, which waits for nobody. It is our own, because SQLite hides errors of a checkpoint that a commit makes.
func (f *File) checkpoint(ctx context.Context, drain Drain) error {
	commits := f.commits.Load()
	if commits == f.checkpointer.done && !f.logLong.Load() {
		return nil
	}
	if err := cmp.Or(f.cutLog(ctx), f.keepReserve(ctx)); err != nil {
		return err
	}
	result, err := f.runCheckpoint(ctx, "PASSIVE")
	if err != nil {
		return err
	}
	f.checkpointer.done = commits
	f.reserve.isCopied.Store(result.Log == result.Done)
	if result.Log*frameSize < f.o.LogBounds.Restart && !f.logLong.Load() || result.Log-result.Done > pinnedFrames ||
		time.Now().Before(f.restartAt) {
		return nil
	}
	f.restartAt = time.Now().Add(restartPause)
	return f.restartLog(ctx, drain)
}

// keepReserve refuses a checkpoint that would use up the reserve, because the file would grow too much by what the log contains.
func (f *File) keepReserve(ctx context.Context) error {
	if !f.reserve.spent.Load() {
		return nil
	}
	var pages int64
	if err := f.checkpointer.db.GetContext(ctx, &pages, "PRAGMA page_count"); err != nil {
		return err
	}
	if size, err := fileSize(f.o.Path); err != nil || pages*pageSize <= max(size, f.reserve.most) {
		return err
	}
	return errSpent
}

// cutLog has the write-ahead log cut to its new end whenever it begins again, if Litestream replicates the file. Litestream that was away
// meanwhile would find the end of what it had seen behind that, believe that it had missed nothing, and leave out what was written in
// between. Commits to a log that grows cost more, so other files keep a long one.
func (f *File) cutLog(ctx context.Context) error {
	c := &f.checkpointer
	if c.cuts {
		return nil
	}
	if err := c.db.GetContext(ctx, &c.cuts, "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = '_litestream_seq')"); err != nil || !c.cuts {
		return err
	}
	f.writing.Lock()
	defer f.writing.Unlock()
	_, err := f.tx.conn.ExecContext(ctx, "PRAGMA journal_size_limit = 0")
	c.cuts = err == nil
	return err
}

func (f *File) runCheckpoint(ctx context.Context, kind string) (result checkpointed, err error) {
	if err := f.checkpointer.db.GetContext(ctx, &result, "PRAGMA wal_checkpoint("+kind+")"); err != nil {
		return result, fmt.Errorf("checkpoint: %w", err)
	}
	return result, nil
}

// restartLog makes the next commit write to the beginning of the write-ahead log. For that, no read may use the log: long reads
// are kept waiting, and the writer pauses between two commits. RESTART beside a writer would wait for it, and one that
// waits for a long reader would delay every commit meanwhile; this one gives up after restartWait and is tried again later.
func (f *File) restartLog(ctx context.Context, drain Drain) error {
	draining, cancel := context.WithTimeout(ctx, drainWait)
	defer cancel()
	resume, drained := drain(draining)
	defer resume()
	if !drained {
		return nil
	}
	kind := "RESTART"
	if f.logLong.Load() {
		kind = "TRUNCATE" // the file must become short even without a next write
	}
	f.writing.Lock()
	result, err := f.runCheckpoint(ctx, kind)
	f.writing.Unlock()
	if err == nil && result.Busy == 0 {
		f.restartAt = time.Time{}
	}
	return err
}

// watchLog tells the operator, once, that the write-ahead log has become very long, and once that it no longer is.
func (f *File) watchLog() {
	info, err := os.Stat(f.o.Path + disk.WAL)
	if err != nil {
		return // lost has reported it
	}
	long := info.Size() >= f.o.LogBounds.Warn
	if interrupt := f.checking.Load(); long && interrupt != nil {
		(*interrupt)() // the check of a large table is such a read, and it is optional
	}
	switch was := f.logLong.Swap(long); {
	case long && !was:
		f.o.Logger.Warn(longLog+" Wait for a running backup, or end the program that reads the file.", "file", f.o.Path+disk.WAL, "bytes", info.Size())
	case was && !long:
		f.o.Logger.Info("the write-ahead log is short again", "bytes", info.Size())
	}
}

// longLog is the warning about a very long write-ahead log. It is public.
const longLog = "The write-ahead log is very long, because a long read keeps it from restarting. It uses disk space until that read ends."
