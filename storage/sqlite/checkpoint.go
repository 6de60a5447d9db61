package sqlite

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/disk"
)

// LogBounds say how long the write-ahead log may become, in bytes. The zero value is 48 MiB and 256 MiB.
type LogBounds struct {
	Restart int64 // from here on it is made to start anew
	Warn    int64 // from here on the operator is told
}

var defaultLogBounds = LogBounds{Restart: 48 << 20, Warn: 256 << 20}

// checkpointer is the connection that makes checkpoints beside the writer, and what it knows of the write-ahead log.
type checkpointer struct {
	db        *sqlx.DB
	done      int64                              // the number of commits at the last checkpoint; watch's own
	restartAt time.Time                          // when the log may be made to start anew again; watch's own
	logLong   atomic.Bool                        // the log is longer than LogBounds.Warn
	checking  atomic.Pointer[context.CancelFunc] // ends the check of a table that is under way
}

const (
	// frameSize is what a page takes in the write-ahead log: the page, and a header of 24 bytes.
	frameSize = 4096 + 24
	// pinnedFrames is how many frames may be left after a checkpoint before a long read is taken to hold them. It is more than
	// what is committed during one slice of a log.
	pinnedFrames = 4096
	// restartWait is how long RESTART waits for readers, in milliseconds. Commits wait for it.
	restartWait = "100"
	// drainWait is how long a restart of the log waits for long reads to end. New ones wait meanwhile.
	drainWait = 300 * time.Millisecond
	// restartPause is how long no restart is tried after one that has failed: each holds up commits for a moment.
	restartPause = 5 * time.Second
)

// checkpointPragmas are those of the connection that makes checkpoints.
func checkpointPragmas(synchronous string) []pragma {
	pragmas := writerPragmas(synchronous)
	for i := range pragmas {
		if pragmas[i].name == "busy_timeout" {
			pragmas[i] = pragma{"busy_timeout", restartWait, restartWait}
		}
	}
	return pragmas
}

// checkpointed is the result of a checkpoint, in frames of the write-ahead log.
type checkpointed struct {
	Busy int   `db:"busy"`         // 1 where readers or a writer were in the way
	Log  int64 `db:"log"`          // in the log
	Done int64 `db:"checkpointed"` // of those, how many are in the database file too
}

// checkpoint copies the write-ahead log into the file, as far as readers let it, and makes the log start anew where it has
// become long. The first is PASSIVE, which waits for nobody. It is ours because SQLite's own, made by a commit, keeps its
// errors to itself.
func (f *File) checkpoint(ctx context.Context) error {
	commits := f.commits.Load()
	if commits == f.checkpointer.done && !f.logLong.Load() {
		return nil
	}
	result, err := f.runCheckpoint(ctx, "PASSIVE")
	if err != nil {
		return err
	}
	f.checkpointer.done = commits
	if result.Log*frameSize < f.o.LogBounds.Restart && !f.logLong.Load() || result.Log-result.Done > pinnedFrames ||
		time.Now().Before(f.restartAt) {
		return nil
	}
	f.restartAt = time.Now().Add(restartPause)
	return f.restartLog(ctx)
}

func (f *File) runCheckpoint(ctx context.Context, kind string) (result checkpointed, err error) {
	if err := f.checkpointer.db.GetContext(ctx, &result, "PRAGMA wal_checkpoint("+kind+")"); err != nil {
		return result, fmt.Errorf("checkpoint: %w", err)
	}
	return result, nil
}

// restartLog makes the next commit write to the beginning of the write-ahead log. For that, no read may use the log: long reads
// are kept waiting, and the writer pauses between two commits. RESTART beside a writer would wait for it, and one that
// waits for a long reader would hold up every commit meanwhile; this one gives up after restartWait and is tried again later.
func (f *File) restartLog(ctx context.Context) error {
	draining, cancel := context.WithTimeout(ctx, drainWait)
	defer cancel()
	resume, drained := f.o.DrainReads(draining)
	defer resume()
	if !drained {
		return nil
	}
	kind := "RESTART"
	if f.logLong.Load() {
		kind = "TRUNCATE" // the file has to become short even if nobody writes
	}
	var result checkpointed
	var err error
	if f.pause(ctx, func() { result, err = f.runCheckpoint(ctx, kind) }) != nil {
		return nil // the writer has stopped
	}
	if err == nil && result.Busy == 0 {
		f.restartAt = time.Time{}
	}
	return err
}

// pause runs do while no transaction is open, and returns when it has ended.
func (f *File) pause(ctx context.Context, do func()) error {
	done := make(chan struct{})
	select {
	case f.pauses <- func() { defer close(done); do() }:
		<-done
		return nil
	case <-f.stopped:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watchLog tells the operator, once, that the write-ahead log has become very long, and once that it no longer is.
func (f *File) watchLog() {
	info, err := os.Stat(f.o.Path + disk.WAL)
	if err != nil {
		return // lost tells of that
	}
	long := info.Size() >= f.o.LogBounds.Warn
	if long {
		if interrupt := f.checking.Load(); interrupt != nil {
			(*interrupt)() // a check of a large table is such a read, and can be done without
		}
	}
	if was := f.logLong.Swap(long); was == long {
		return
	}
	if long {
		f.o.Logger.Warn(longLog+" Wait for a running backup, or end the program that reads the file.", "file", f.o.Path+disk.WAL, "bytes", info.Size())
		return
	}
	f.o.Logger.Info("the write-ahead log is short again", "bytes", info.Size())
}

// longLog is the warning about a very long write-ahead log. Anybody may read it.
const longLog = "The write-ahead log is very long, because a read that does not end keeps it from starting anew. It takes disk space until that read ends."
