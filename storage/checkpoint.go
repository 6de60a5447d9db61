package storage

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/keyhook/keyhook/storage/disk"
)

// logBounds say how long the write-ahead log may become, in bytes.
type logBounds struct {
	restart int64 // from here on it is made to start anew
	warn    int64 // from here on the operator is told
}

var defaultLogBounds = logBounds{restart: 48 << 20, warn: 256 << 20}

const (
	// frameSize is what a page takes in the write-ahead log: the page, and a header of 24 bytes.
	frameSize = 4096 + 24
	// pinnedFrames is how many frames may be left after a checkpoint before a long read is taken to hold them. It is more than
	// what is committed during one slice of a log.
	pinnedFrames = 4096
	// keeperWait is how long RESTART waits for readers, in milliseconds. Commits wait for it.
	keeperWait = "100"
	// drainWait is how long a restart of the log waits for reads of logs to end. New reads of logs wait meanwhile.
	drainWait = 300 * time.Millisecond
	// restartPause is how long no restart is tried after one that has failed: each holds up commits for a moment.
	restartPause = 5 * time.Second
)

// keeperPragmas are those of the connection that makes checkpoints.
func keeperPragmas(synchronous string) []pragma {
	pragmas := writerPragmas(synchronous)
	for i := range pragmas {
		if pragmas[i].name == "busy_timeout" {
			pragmas[i] = pragma{"busy_timeout", keeperWait, keeperWait}
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
func (s *Store) checkpoint(ctx context.Context) error {
	commits := s.commits.Load()
	if commits == s.checkpointed && !s.logLong.Load() {
		return nil
	}
	result, err := s.runCheckpoint(ctx, "PASSIVE")
	if err != nil {
		return err
	}
	s.checkpointed = commits
	if result.Log*frameSize < s.logBounds.restart && !s.logLong.Load() || result.Log-result.Done > pinnedFrames ||
		time.Now().Before(s.restartAt) {
		return nil
	}
	s.restartAt = time.Now().Add(restartPause)
	return s.restartLog(ctx)
}

func (s *Store) runCheckpoint(ctx context.Context, kind string) (result checkpointed, err error) {
	if err := s.keeper.GetContext(ctx, &result, "PRAGMA wal_checkpoint("+kind+")"); err != nil {
		return result, fmt.Errorf("checkpoint: %w", err)
	}
	return result, nil
}

// restartLog makes the next commit write to the beginning of the write-ahead log. For that, no read may use the log: reads of
// logs are kept waiting, and the writer pauses between two commits. RESTART beside a writer would wait for it, and one that
// waits for a long reader would hold up every commit meanwhile; this one gives up after keeperWait and is tried again later.
func (s *Store) restartLog(ctx context.Context) error {
	draining, cancel := context.WithTimeout(ctx, drainWait)
	defer cancel()
	for _, r := range []*logReader{s.logs, s.replays} {
		resume, drained := r.drain(draining)
		defer resume()
		if !drained {
			return nil
		}
	}
	kind := "RESTART"
	if s.logLong.Load() {
		kind = "TRUNCATE" // the file has to become short even if nobody writes
	}
	var result checkpointed
	var err error
	if s.pause(ctx, func() { result, err = s.runCheckpoint(ctx, kind) }) != nil {
		return nil // the store stops
	}
	if err == nil && result.Busy == 0 {
		s.restartAt = time.Time{}
	}
	return err
}

// pause runs do while no transaction is open, and returns when it has ended.
func (s *Store) pause(ctx context.Context, do func()) error {
	done := make(chan struct{})
	select {
	case s.pauses <- func() { defer close(done); do() }:
		<-done
		return nil
	case <-s.stopped:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watchLog tells the operator, once, that the write-ahead log has become very long, and once that it no longer is.
func (s *Store) watchLog() {
	info, err := os.Stat(s.path + disk.WAL)
	if err != nil {
		return // lost tells of that
	}
	long := info.Size() >= s.logBounds.warn
	if long {
		if interrupt := s.checking.Load(); interrupt != nil {
			(*interrupt)() // a check of a large table is such a read, and can be done without
		}
	}
	if was := s.logLong.Swap(long); was == long {
		return
	}
	if long {
		s.log.Warn(longLog+" Wait for a running backup, or end the program that reads the file.", "file", s.path+disk.WAL, "bytes", info.Size())
		return
	}
	s.log.Info("the write-ahead log is short again", "bytes", info.Size())
}

// longLog is the warning about a very long write-ahead log. Anybody may read it.
const longLog = "The write-ahead log is very long, because a read that does not end keeps it from starting anew. It takes disk space until that read ends."
