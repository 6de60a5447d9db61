package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/applied"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/encryption"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/pending"
	"github.com/keyhook/keyhook/storage/quota"
	"github.com/keyhook/keyhook/storage/retention"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Open locks, checks and opens the database, or creates it. A process that runs as root first takes the rights of the
// owner of the database permanently (see disk.Locate).
//
// Open refuses with advice on what to do: ErrInUse, ErrNewerSchema, ErrSchema, ErrForeignFile, ErrLost, ErrDamaged,
// ErrKey, ErrKeyMissing, or an error of package disk. It does not change a file that it refuses.
func Open(ctx context.Context, o Options) (_ *Store, err error) {
	s, err := newStore(o)
	if err != nil {
		return nil, err
	}
	if err := s.openFile(ctx, o); err != nil {
		return nil, err
	}
	if err := s.load(ctx, o); err != nil {
		return nil, fmt.Errorf("open %s: %w", s.file.Path(), errors.Join(sqlite.Advise(err), s.Close()))
	}
	return s, nil
}

func newStore(o Options) (*Store, error) {
	if o.Policy == (webhook.Policy{}) {
		o.Policy = webhook.DefaultPolicy()
	}
	if o.Policy.MaxAttempts > maxAttempts {
		return nil, fmt.Errorf("policy of %d attempts: a delivery may have at most %d", o.Policy.MaxAttempts, maxAttempts)
	}
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	q := &Queue{
		tx: newTx(o.Policy.ProbeDisabled, o.Logger), pending: pending.NewCount(), policy: o.Policy, keepEvents: o.KeepEvents,
		observer: o.Observer, log: o.Logger, replayLock: make(chan struct{}, 1), recovering: map[int64]*begunRecovery{},
	}
	q.mayRecover.Store(true)
	return &Store{Queue: q, Subscriptions: &Subscriptions{q}, log: o.Logger, keepEvents: o.KeepEvents, clock: clock.NewWatch(o.Logger)}, nil
}

// openFile opens the database and finds its encryption key.
func (s *Store) openFile(ctx context.Context, o Options) (err error) {
	var keys encryption.Keys
	e := o.engine()
	e.Logger = s.log
	e.Prepare = func(path string, start sqlite.Start) (err error) {
		o.Path = path
		keys, err = o.keys(ctx, start)
		return err
	}
	e.Recognize = func(ctx context.Context, path string, db *sqlx.DB) error {
		key, err := keys.Recognize(ctx, path, db)
		if err == nil {
			s.key, s.Queue.keyRing = key, seal.NewRing(key)
		}
		return err
	}
	e.Create = s.Queue.inTx(func(t *tx) error {
		if o.Bootstrap == (access.Credential{}) {
			return errors.New("a new database needs a bootstrap credential")
		}
		s.key, s.Queue.keyRing = keys.First(), seal.NewRing(keys.First())
		return errors.Join(s.seedInstance(t), directory.Seed(t.Tx))
	})
	e.Made = func() error { return keys.Keep() }
	e.Begin, e.Flush = s.Queue.inTx(s.Queue.checkOrder), s.Queue.inTx((*tx).flush)
	e.RolledBack = func() { s.Queue.rolledBack(0) }
	e.Undone = func() { s.Queue.rolledBack(s.Queue.tx.keptPlaces) }
	e.Committed, e.Probe, e.DrainReads = s.Queue.observer.Committed, writeProbe, s.drainReads
	s.file, err = sqlite.Open(ctx, e)
	s.Queue.file = s.file
	return err
}

// keys finds the keys that may fit the database, or creates the key of a new one.
func (o Options) keys(ctx context.Context, start sqlite.Start) (encryption.Keys, error) {
	if o.findKeys != nil {
		return o.findKeys(ctx, o.Path)
	}
	return o.source().FindOrCreate(ctx, start)
}

// source says where the encryption key is.
func (o Options) source() encryption.Source {
	return encryption.Source{Path: o.Path, Key: o.EncryptionKey}
}

// load reads the state that the store has in memory, and ends the attempts of the last owner. Each step needs the ones
// before it.
func (s *Store) load(ctx context.Context, o Options) error {
	q := s.Queue
	if err := s.file.Read(q.inTx(s.loadSalt)); err != nil {
		return err
	}
	if err := q.changeBeforeRun(q.interruptAttempts); err != nil {
		return fmt.Errorf("mark interrupted attempts: %w", err)
	}
	steps := []func(*tx) error{func(t *tx) error { return q.pending.Load(t.Tx) }, q.subscriptions.load, q.loadHold, q.loadLastDelivery, q.loadOrder}
	if !o.isCopy {
		steps = append(steps, s.loadClock)
	}
	for _, step := range steps {
		if err := s.file.Read(q.inTx(step)); err != nil {
			return err
		}
	}
	if err := s.openPools(ctx); err != nil {
		return err
	}
	s.Survey = s.newSurvey()
	s.History = history.New(history.Options{
		Reads: s.reads, Logs: s.logs, IDs: q.ids, Policy: q.policy, Pending: q.pending,
		Hold: q.Hold, KeepEvents: q.keepEvents, TrustedTime: s.clock.TrustedTime,
	})
	q.reads, q.history = s.reads, s.History
	s.ApplyList = applied.New(applied.Options{File: s.file, Reads: s.reads, Forgotten: func(t *sqlite.Tx, by access.Actor, kind, key string) error {
		return q.audit(q.with(t), by, 0, access.AppliedForgotten, auditTarget{Type: kind, ID: key}, nil)
	}})
	s.Directory = directory.New(s.file, s.reads, s.logs, s.directoryHooks())
	s.cleaner = retention.New(s.retentionOptions(o.KeepAudit))
	if err := s.Directory.EnsureBootstrapToken(directory.Bootstrap{Credential: o.Bootstrap, Life: o.BootstrapLife, Link: o.BootstrapLink}); err != nil {
		return fmt.Errorf("create the first operator's token: %w", err)
	}
	return nil
}

// newSurvey returns the survey of what is pending.
func (s *Store) newSurvey() *pending.Survey {
	return pending.New(pending.Options{
		Count: s.Queue.pending, Reads: s.reads, All: s.surveys, Logs: s.logs, Hold: s.Queue.Hold, ReleasedAt: s.Queue.releasedAt.Load, Statuses: s.Queue.SubscriptionCounts,
	})
}

// directoryHooks are what a change of the directory does to the other tables.
func (s *Store) directoryHooks() directory.Hooks {
	return directory.Hooks{
		Audit: func(t *sqlite.Tx, by access.Actor, organization int64, eventType string, about directory.Target, details map[string]any) error {
			return s.Queue.audit(s.Queue.with(t), by, organization, eventType, auditTarget{Type: about.Type, ID: about.ID}, details)
		},
		AuditCost: func(t *sqlite.Tx, organization int64, eventType string) (int, error) {
			return auditCost(s.Queue.with(t), organization, eventType)
		},
		RequireStorage: func(t *sqlite.Tx, organization int64, bytes int) error {
			if err := s.Queue.with(t).quotas.Require(t, organization, quota.PerChange+bytes); err != nil {
				return err
			}
			s.Queue.with(t).quotas.Count(t, organization, bytes)
			return nil
		},
		PlanChanged: func(t *sqlite.Tx, webhooks bool) {
			s.Queue.with(t).quotas.Forget()
			if webhooks {
				s.Queue.announceChange(s.Queue.with(t))
			}
		},
	}
}

// seedInstance writes what the store itself starts with.
func (s *Store) seedInstance(t *tx) error {
	salt := make([]byte, 16)
	rand.Read(salt)
	if _, err := t.Exec("INSERT INTO instance (name, value) VALUES ('salt', ?), ('canary', ?)",
		salt, encryption.Canary(s.Queue.keyRing)); err != nil {
		return err
	}
	return writeClock(t, clock.State{Seen: t.Now()})
}

func (s *Store) loadSalt(t *tx) (err error) {
	s.Queue.ids.Salt, err = instanceValue(t, "salt")
	return err
}

// The pools of readers. Reads of logs have connections of their own, so authentication and delivery never wait for them. A
// filtered log read may read many rows and find few.
const (
	readers   = 4
	readLimit = 10 * time.Second

	logReaders = 2
	logLimit   = 3 * time.Second // of one statement; a slice takes far less
	logWait    = 5 * time.Second // for a turn, and then for each connection

	replayReaders = 1

	surveyReaders = 1 // reads every subscription with pending deliveries; 300,000 of them take a second or more
	surveyLimit   = 20 * time.Second
)

// openPools opens the read connections.
func (s *Store) openPools(ctx context.Context) (err error) {
	var logs, replays *sqlite.Pool
	for _, of := range []struct {
		pool        **sqlite.Pool
		connections int
		limit       time.Duration
	}{{&s.reads, readers, readLimit}, {&logs, logReaders, logLimit}, {&replays, replayReaders, logLimit}, {&s.surveys, surveyReaders, surveyLimit}} {
		if *of.pool, err = s.file.Pool(ctx, of.connections, of.limit); err != nil {
			return err
		}
	}
	s.logs = scan.NewReader(logs, logReaders, logWait)
	s.Queue.replays = scan.NewReader(replays, replayReaders, 0)
	return nil
}

// drainReads waits for the end of all log reads. New ones wait until resume is called.
func (s *Store) drainReads(ctx context.Context) (resume func(), drained bool) {
	resumeLogs, drained := s.logs.Drain(ctx)
	if !drained {
		return resumeLogs, false
	}
	resumeReplays, drained := s.Queue.replays.Drain(ctx)
	return func() { resumeReplays(); resumeLogs() }, drained
}

// writeProbe writes other bytes than the last probe, because SQLite skips a write that changes nothing.
func writeProbe(t *sqlite.Tx, size int) error {
	value := bytes.Repeat(binary.BigEndian.AppendUint64(nil, uint64(t.Now())), size/8)
	_, err := t.Exec("INSERT INTO instance (name, value) VALUES ('probe', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", value)
	return err
}
