package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// ErrFailed is returned by Run, and by every later write, once acknowledged data can be lost: an fsync failed, or the file was
// removed or replaced under the running process. The process must end without touching the file again.
var ErrFailed = errors.New("the database cannot be relied on any more")

// problem is what is wrong with the file now. Its text is for metrics.
type problem string

// The problems. The first two end by themselves.
const (
	diskFull problem = "disk_full"
	ioError  problem = "io_error" // writes fail for another reason
	damaged  problem = "damaged"
)

// public is the text of a problem that any caller may read.
var public = map[problem]string{
	diskFull: "the disk is full: writes fail until a few megabytes are free",
	ioError:  "the disk refuses writes; it is tried again every second",
	damaged:  "the database is damaged, so nothing is written; restore a backup",
}

// part is the kind of work that found a problem. The problem ends when the same kind of work succeeds.
type part int

const (
	byCommit part = iota
	byCheckpoint
	byReading
	parts
)

// After this many failed reads within this time, the disk is given up.
const (
	badReads   = 3
	badReadsIn = time.Minute
)

// blockedLimit is how long writes may fail before the file is not ready. Keyhook itself writes more often than that. So
// a single failed write on an idle file does not count.
const blockedLimit = 2 * time.Minute

// blocked is the public text of that problem.
const blocked = "no write has succeeded for two minutes: the disk does not respond, or another program has locked the database; end that program, or check the disk of storage.path"

// failures are the present problems of the file. All methods are safe for concurrent use.
type failures struct {
	log *slog.Logger

	intact context.Context // ends when the file stops, with the reason as its cause
	stop   context.CancelCauseFunc

	mu    sync.Mutex
	wrong [parts]problem
	bad   []time.Time // when reads failed
}

func newFailures(log *slog.Logger) *failures {
	c := &failures{log: log}
	c.intact, c.stop = context.WithCancelCause(background)
	return c
}

// note records an error of a part (sqlite.org/rescode.html). It ignores nil, and what concerns the caller only, or a moment.
func (c *failures) note(p part, err error) {
	result := code(err)
	switch primary := result & primaryMask; {
	case isFull(err):
		c.degrade(p, diskFull, err)
	case result == sqliteFsync, result == sqliteDirFsync, result == sqliteInPage:
		c.fail(err)
	case result == sqliteRead, result == sqliteShortRead:
		if c.tooMany() {
			c.fail(fmt.Errorf("%d reads failed within %s: %w", badReads, badReadsIn, err))
		}
	case primary == sqliteCorrupt, primary == sqliteNotADB:
		c.degrade(p, damaged, err)
	case primary == sqliteReadOnly, primary == sqliteCantOpen, primary == sqliteIOError:
		c.degrade(p, ioError, err)
	}
}

func (c *failures) degrade(p part, a problem, err error) {
	if a == damaged {
		p = byReading // any part may find it; no commit ends it
	} else if p == byReading {
		return // the caller gets the error, and the next read may succeed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong[p] == a || c.wrong[p] == damaged {
		return
	}
	c.wrong[p] = a
	c.log.Error("degraded: "+public[a], "reason", string(a), "error", err)
}

// heal ends the problem that a part found, after a success of that part. Damage stays.
func (c *failures) heal(p part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was := c.wrong[p]; was != "" && was != damaged {
		c.wrong[p] = ""
		c.log.Warn("no longer degraded", "reason", string(was))
	}
}

// tooMany counts a failed read and reports whether there were too many recently.
func (c *failures) tooMany() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.bad = slices.DeleteFunc(c.bad, func(at time.Time) bool { return now.Sub(at) > badReadsIn })
	c.bad = append(c.bad, now)
	return len(c.bad) >= badReads
}

// fail stops the file until the process ends. It reports whether this is the first cause.
func (c *failures) fail(cause error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended() != nil {
		return false
	}
	c.log.Error("stopping at once: "+ErrFailed.Error(), "error", cause)
	c.stop(fmt.Errorf("%w: %w", ErrFailed, cause))
	return true
}

// refusal returns why writes are refused, or nil.
func (c *failures) refusal() error {
	if err := c.ended(); err != nil {
		return err
	}
	if c.has(damaged) {
		return fmt.Errorf("write: %w", ErrDamaged)
	}
	return nil
}

// ended returns the error that stopped the file, or nil.
func (c *failures) ended() error { return context.Cause(c.intact) }

func (c *failures) has(a problem) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.wrong[:], a)
}

func (c *failures) degraded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrong != [parts]problem{}
}

// Ready returns an error if the file cannot be written now. The warning names a problem that does not stop writes yet;
// it may be empty. Both texts are public.
func (f *File) Ready(context.Context) (warning string, err error) {
	if f.failures.ended() != nil {
		return "", errors.New(ErrFailed.Error())
	}
	for _, a := range []problem{damaged, diskFull, ioError} {
		if f.failures.has(a) {
			return "", errors.New(public[a])
		}
	}
	if f.isBlocked() {
		return "", errors.New(blocked)
	}
	if f.logLong.Load() {
		return longLog, nil
	}
	return "", nil
}

// Degraded reports, for each possible problem, whether the file has it at present.
func (f *File) Degraded() map[string]bool {
	all := map[string]bool{}
	for a := range public {
		all[string(a)] = f.failures.has(a)
	}
	all["blocked"] = !f.failures.degraded() && f.isBlocked() // otherwise the other reason is the cause
	return all
}

func (f *File) isBlocked() bool {
	since := f.blockedSince.Load()
	return since != nil && time.Since(*since) > blockedLimit
}
