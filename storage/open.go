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
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Open locks, checks and opens the database, and creates it where there is none. A process that is root takes on the rights
// of the owner of the database first, for good (see disk.Locate). Open refuses with a sentence that says what to do:
// ErrInUse, ErrNewerSchema, ErrSchema, ErrForeignFile, ErrLost, ErrDamaged, ErrKey, ErrKeyMissing, or one of package disk. A
// file that is refused is left as it was.
func Open(ctx context.Context, o Options) (_ *Store, err error) {
	s, err := newStore(o)
	if err != nil {
		return nil, err
	}
	if err := s.openFile(ctx, o); err != nil {
		return nil, err
	}
	if err := s.load(ctx, o); err != nil {
		return nil, fmt.Errorf("open %s: %w", s.file.Path(), errors.Join(sqlite.Explain(err), s.Close()))
	}
	return s, nil
}

func newStore(o Options) (*Store, error) {
	s := &Store{
		tx:        newTx(),
		policy:    o.Policy,
		retention: retention{events: o.KeepEvents, audit: o.KeepAudit},
		observer:  o.Observer,
		log:       o.Logger,
		replaying: make(chan struct{}, 1),
		sweeps:    newSweeps(),
	}
	if s.policy == (webhook.Policy{}) {
		s.policy = webhook.DefaultPolicy()
	}
	if s.policy.MaxAttempts > maxAttempts {
		return nil, fmt.Errorf("policy of %d attempts: a delivery may have at most %d", s.policy.MaxAttempts, maxAttempts)
	}
	if s.observer == nil {
		s.observer = unobserved{}
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	return s, nil
}

// openFile opens the database and finds its encryption key.
func (s *Store) openFile(ctx context.Context, o Options) (err error) {
	var found encryptionKeys
	e := o.engine()
	e.Logger = s.log
	e.Prepare = func(path string, start sqlite.Start) (err error) {
		o.Path = path
		if found, err = o.prepareKeys(start); err == nil && len(found.keys) == 0 {
			err = found.create()
		}
		return err
	}
	e.Recognize = func(ctx context.Context, path string, db *sqlx.DB) error {
		key, err := found.recognize(ctx, path, db)
		if err == nil {
			s.key, s.keyRing = key, seal.NewRing(key)
		}
		return err
	}
	e.Create = s.inTx(func(t *tx) error {
		if o.Bootstrap == (access.Credential{}) {
			return errors.New("a new database needs a bootstrap credential")
		}
		s.key, s.keyRing = found.keys[0], seal.NewRing(found.keys[0])
		return errors.Join(s.seedInstance(t), directory.Seed(t.Tx))
	})
	e.Made = func() error { return found.file.keep() }
	e.Begin, e.BeforeCommit, e.RolledBack = s.inTx(s.keepOrder), s.inTx((*tx).writeCounts), s.tx.rolledBack
	e.Committed, e.Probe, e.DrainReads = s.observer.Committed, writeProbe, s.drainReads
	s.file, err = sqlite.Open(ctx, e)
	return err
}

// engine returns the options of the engine, without hooks.
func (o Options) engine() sqlite.Options {
	e := sqlite.Options{
		Path: o.Path, Schema: o.Schema, Upgrades: o.upgrades, Synchronous: o.Synchronous, Expendable: o.copied, LogBounds: o.logBounds,
	}
	e.Reached = o.reached
	if e.Upgrades == nil {
		e.Upgrades = schemaUpgrades[:]
	}
	return e
}

// load reads what the store knows from the start on, and ends what the last owner has left. Each step relies on the ones
// before.
func (s *Store) load(ctx context.Context, o Options) error {
	if err := s.file.Read(s.inTx(s.loadSalt)); err != nil {
		return err
	}
	if err := s.alone(s.interruptSending); err != nil {
		return fmt.Errorf("mark interrupted attempts: %w", err)
	}
	steps := []func(*tx) error{s.pending.load, s.loadHold, s.loadOrder}
	if !o.copied {
		steps = append(steps, s.loadClock)
	}
	for _, step := range steps {
		if err := s.file.Read(s.inTx(step)); err != nil {
			return err
		}
	}
	if err := s.openPools(ctx); err != nil {
		return err
	}
	s.Directory = directory.New(s.file, s.reads, s.logs, s.directoryHooks())
	if err := s.Invite(directory.Bootstrap{Credential: o.Bootstrap, Life: o.BootstrapLife}); err != nil {
		return fmt.Errorf("make the first operator's token: %w", err)
	}
	return nil
}

// directoryHooks are what a change of the directory does to the other tables.
func (s *Store) directoryHooks() directory.Hooks {
	return directory.Hooks{
		Audit: func(t *sqlite.Tx, by access.Actor, organization int64, eventType string, about directory.Target, details map[string]any) error {
			return s.audit(s.with(t), by, organization, eventType, auditTarget{Type: about.Type, ID: about.ID}, details)
		},
		RequireStorage: func(t *sqlite.Tx, organization int64) error {
			return requireStorage(s.with(t), organization, storedPerChange)
		},
		PlanChanged: func(t *sqlite.Tx, webhooks bool) {
			s.with(t).quotas.forget()
			if webhooks {
				s.announceChange(s.with(t))
			}
		},
		Dependents: dependents,
		ForgetOrganization: func(t *sqlite.Tx, organization, heir int64) error {
			s.with(t).forgetOrganization(organization)
			return moveHistory(t, organization, heir)
		},
	}
}

// seedInstance writes what the store itself starts with.
func (s *Store) seedInstance(t *tx) error {
	salt := make([]byte, 16)
	rand.Read(salt)
	if _, err := t.Exec("INSERT INTO instance (name, value) VALUES ('salt', ?), ('canary', ?)",
		salt, s.keyRing.Seal([]byte(canary), canary)); err != nil {
		return err
	}
	return writeClock(t, clock.State{Seen: t.Now()})
}

func (s *Store) loadSalt(t *tx) (err error) {
	s.ids.Salt, err = instance(t, "salt")
	return err
}

// The pools of readers. Reads of logs have connections of their own, so that authentication and delivery never wait for them:
// a caller filters a log, so a read may look at many rows and find few.
const (
	readers   = 4
	readLimit = 10 * time.Second

	logReaders = 2
	logLimit   = 3 * time.Second // of one statement; a slice takes far less
	logWait    = 5 * time.Second // for a turn, and then for each connection

	replayReaders = 1

	surveyReaders = 1 // looks at every subscription with pending deliveries: a second or more for 300,000
	surveyLimit   = 20 * time.Second
)

// openPools opens the connections that read.
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
	s.replays = scan.NewReader(replays, replayReaders, 0)
	return nil
}

// drainReads waits until no log is read, and keeps new reads of logs waiting until resume is called.
func (s *Store) drainReads(ctx context.Context) (resume func(), drained bool) {
	resumeLogs, drained := s.logs.Drain(ctx)
	if !drained {
		return resumeLogs, false
	}
	resumeReplays, drained := s.replays.Drain(ctx)
	return func() { resumeReplays(); resumeLogs() }, drained
}

// writeProbe writes other bytes than the last time, or nothing would be written.
func writeProbe(t *sqlite.Tx, size int) error {
	value := bytes.Repeat(binary.BigEndian.AppendUint64(nil, uint64(t.Now())), size/8)
	_, err := t.Exec("INSERT INTO instance (name, value) VALUES ('probe', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", value)
	return err
}

// State is what stands at a path.
type State = sqlite.State

// The states of a file that Open would take.
const (
	None     = sqlite.None
	Closed   = sqlite.Closed
	LeftOpen = sqlite.LeftOpen
	Outdated = sqlite.Outdated
)

// Owner tells which process owns the file at path; see sqlite.Owner.
func Owner(path string) (pid string, running bool) { return sqlite.Owner(path) }

// Examine looks at a file that nobody owns as Open would, and refuses it as Open would, but changes nothing and makes
// nothing. It looks less far into a file that was left open, which only its next owner may read.
func Examine(ctx context.Context, o Options) (State, error) {
	var found encryptionKeys
	e := o.engine()
	e.Prepare = func(path string, start sqlite.Start) (err error) {
		o.Path = path
		found, err = o.prepareKeys(start)
		return err
	}
	e.Recognize = func(ctx context.Context, path string, db *sqlx.DB) error {
		_, err := found.recognize(ctx, path, db)
		return err
	}
	return sqlite.Examine(ctx, e)
}

// schemaVersion is the version of schema.sql (PRAGMA user_version): one more than there are upgrades.
const schemaVersion = 1

// schemaUpgrades are those of this version: the first takes schema 1 to schema 2, and so on. The table instance stays as it
// is, for it is read before an upgrade.
var schemaUpgrades = [schemaVersion - 1]sqlite.Step{}
