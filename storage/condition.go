package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// ErrFailed is what Run ends with, and every write from then on, once what was acknowledged can no longer be kept: flushing
// failed, or the file was removed or replaced beneath the process. The process must end without touching the file again.
var ErrFailed = errors.New("the database cannot be relied on any more")

// ailment is what is wrong with the file for the time being. Its text is for those who watch metrics.
type ailment string

// The ailments. Of the first two a store heals by itself.
const (
	diskFull ailment = "disk_full"
	ioError  ailment = "io_error" // nothing can be written, for another reason
	damaged  ailment = "damaged"
)

// public is what anybody may know of an ailment.
var public = map[ailment]string{
	diskFull: "the disk is full: nothing can be written until there is room",
	ioError:  "the disk refuses writes; it is tried again every second",
	damaged:  "the database is damaged: nothing is written any more; put it back from a backup",
}

// part is whose success ends an ailment that it has found.
type part int

const (
	byCommit part = iota
	byCheckpoint
	byReading
	parts
)

// A disk that often fails to give back what it holds is not waited for.
const (
	badReads   = 3
	badReadsIn = time.Minute
)

// blockedLimit is for how long no write may succeed before the store is not ready. The store itself writes more often than
// that, so one write that has failed on an idle store is forgotten before.
const blockedLimit = 2 * clockInterval

// blocked is the problem then. Anybody may read it.
const blocked = "no write has succeeded for two minutes: the disk does not answer, or another program has locked the database; end that program, or look at the disk of storage.path"

// verdict is what follows from an error of SQLite.
type verdict int

const (
	harmless verdict = iota // of the caller, or for a moment
	degrading
	reading // a read failed; what it means depends on how often
	fatal
)

// judge tells what an error means for the file (sqlite.org/rescode.html).
func judge(err error) (verdict, ailment) {
	if isFull(err) {
		return degrading, diskFull
	}
	switch c := code(err); c & primaryMask {
	case sqliteCorrupt, sqliteNotADB:
		return degrading, damaged
	case sqliteReadOnly, sqliteCantOpen:
		return degrading, ioError
	case sqliteIOError:
		switch c {
		case sqliteFsync, sqliteDirFsync, sqliteInPage:
			return fatal, ioError
		case sqliteRead, sqliteShortRead:
			return reading, ioError
		}
		return degrading, ioError
	}
	return harmless, ""
}

// condition is how the file is. Its methods may be called by anybody.
type condition struct {
	log    *slog.Logger
	ailing atomic.Bool // something is wrong with a part: the fast way to see that nothing is

	mu      sync.Mutex
	wrong   [parts]ailment
	bad     []time.Time // when reads failed
	failed  chan struct{}
	failure error
}

func newCondition(log *slog.Logger) *condition {
	return &condition{log: log, failed: make(chan struct{})}
}

// note takes in what went wrong for a part; nil is nothing.
func (c *condition) note(p part, err error) {
	if err == nil {
		return
	}
	switch v, a := judge(err); v {
	case degrading:
		c.ail(p, a, err)
	case reading:
		if c.tooMany() {
			c.fail(fmt.Errorf("%d reads failed within %s: %w", badReads, badReadsIn, err))
		}
	case fatal:
		c.fail(err)
	}
}

func (c *condition) ail(p part, a ailment, err error) {
	if a == damaged {
		p = byReading // whoever has found it: no commit heals it
	} else if p == byReading {
		return // the caller was told; the next read may go well
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong[p] == a || c.wrong[p] == damaged {
		return
	}
	c.wrong[p] = a
	c.ailing.Store(true)
	c.log.Error("degraded: "+public[a], "reason", string(a), "error", err)
}

// heal ends what a part has found, damage aside, now that it went well.
func (c *condition) heal(p part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong[p] == "" || c.wrong[p] == damaged {
		return
	}
	was := c.wrong[p]
	c.wrong[p] = ""
	if c.wrong == [parts]ailment{} {
		c.ailing.Store(false)
	}
	c.log.Warn("no longer degraded", "reason", string(was))
}

// tooMany counts a failed read.
func (c *condition) tooMany() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for len(c.bad) > 0 && now.Sub(c.bad[0]) > badReadsIn {
		c.bad = c.bad[1:]
	}
	c.bad = append(c.bad, now)
	return len(c.bad) >= badReads
}

// fail has the store stop for good. It reports whether this was the first reason to.
func (c *condition) fail(cause error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		return false
	}
	c.failure = fmt.Errorf("%w: %w", ErrFailed, cause)
	c.log.Error("stopping at once: "+ErrFailed.Error(), "error", cause)
	close(c.failed)
	return true
}

// refusal is why nothing may be written; nil where it may.
func (c *condition) refusal() error {
	select {
	case <-c.failed:
		return c.ended()
	default:
	}
	if c.ailing.Load() && c.has(damaged) {
		return fmt.Errorf("write: %w", ErrDamaged)
	}
	return nil
}

// ended is what the store has failed of; nil where it has not.
func (c *condition) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

func (c *condition) has(a ailment) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.wrong {
		if w == a {
			return true
		}
	}
	return false
}

// Ready reports why the file cannot be written at present; nil means that it can. The warning names a problem that does
// not stop writes yet; empty means none. Anybody may read both texts.
func (s *Store) Ready(context.Context) (warning string, err error) {
	if s.condition.ended() != nil {
		return "", errors.New(ErrFailed.Error())
	}
	for _, a := range []ailment{damaged, diskFull, ioError} {
		if s.condition.has(a) {
			return "", errors.New(public[a])
		}
	}
	if since := s.blockedSince.Load(); since != nil && time.Since(*since) > blockedLimit {
		return "", errors.New(blocked)
	}
	if s.logLong.Load() {
		return longLog, nil
	}
	return "", nil
}

// Degraded tells, of each reason for which nothing may be written at present, whether it holds.
func (s *Store) Degraded() map[string]bool {
	all := map[string]bool{}
	for a := range public {
		all[string(a)] = s.condition.has(a)
	}
	return all
}
