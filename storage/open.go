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
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/catalogue"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/encryption"
	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/instance"
	"github.com/keyhook/keyhook/storage/pending"
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
func Open(ctx context.Context, o Options) (*Store, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	if err := fanout.RegisterPasses(); err != nil {
		return nil, err
	}
	t := newTx(o)
	file, key, err := o.openFile(ctx, t)
	if err != nil {
		return nil, err
	}
	s, err := o.assemble(ctx, writer{file, t}, key)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", file.Path(), errors.Join(sqlite.Advise(err), file.Close()))
	}
	return s, nil
}

// complete checks the options and sets the defaults.
func (o Options) complete() (Options, error) {
	if o.Policy == (webhook.Policy{}) {
		o.Policy = webhook.DefaultPolicy()
	}
	if o.Policy.MaxAttempts > maxAttempts {
		return o, fmt.Errorf("policy of %d attempts: a delivery may have at most %d", o.Policy.MaxAttempts, maxAttempts)
	}
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, nil
}

// openFile opens the database, whose transactions t sees, and finds its encryption key.
func (o Options) openFile(ctx context.Context, t *tx) (_ *sqlite.File, key seal.Key, err error) {
	var keys encryption.Keys
	e := o.engine()
	e.Logger = o.Logger
	e.Prepare = func(path string, start sqlite.Start) (err error) {
		o.Path = path
		keys, err = o.keys(ctx, start)
		return err
	}
	e.Recognize = func(ctx context.Context, path string, db *sqlx.DB) (err error) {
		key, err = keys.Recognize(ctx, path, db)
		return err
	}
	e.Create = t.job(func(t *tx) error {
		if o.Bootstrap == (access.Credential{}) {
			return errors.New("a new database needs a bootstrap credential")
		}
		key = keys.First()
		return errors.Join(seedInstance(t, key), directory.Seed(t.Tx))
	})
	e.Made = func() error { return keys.Keep() }
	e.Begin, e.Flush = t.job((*tx).checkOrder), t.job((*tx).flush)
	e.RolledBack = func() { t.rolledBack(0) }
	e.Undone = func() { t.rolledBack(t.keptPlaces) }
	e.Committed, e.Probe = o.Observer.Committed, writeProbe
	file, err := sqlite.Open(ctx, e)
	return file, key, err
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

// assemble ends the attempts of the last owner, reads what the writer remembers, and makes the parts of the store.
func (o Options) assemble(ctx context.Context, w writer, key seal.Key) (*Store, error) {
	observed := clock.NewWatch(o.Logger)
	if err := o.load(w, observed); err != nil {
		return nil, err
	}
	pools, err := openPools(ctx, w.file)
	if err != nil {
		return nil, err
	}
	t := w.tx
	survey := newSurvey(t.shared, pools)
	past := history.New(history.Options{
		Reads: pools.reads, Logs: pools.logs, IDs: t.ids, Policy: t.policy, Pending: t.pending,
		Hold: t.committedHold.Load, KeepEvents: o.KeepEvents, TrustedTime: observed.TrustedTime,
	})
	queue := &Queue{
		shared: t.shared, writer: w, keyRing: seal.NewRing(key), ids: t.ids, history: past, reads: pools.reads, replays: pools.replays, feeds: pools.feeds,
		keepEvents: o.KeepEvents, replayLock: make(chan struct{}, 1), recovering: map[int64]*begunRecovery{},
	}
	people := directory.New(w.file, pools.reads, pools.logs, t.quotas, directoryHooks(t))
	described := catalogue.New(w.file, pools.reads, t.catalogued, func(now *sqlite.Tx, by access.Actor, action, eventType string, details map[string]any) error {
		return t.with(now).audit(by, 0, action, audit.Target{Type: access.KindEventType, ID: eventType}, details)
	})
	s := &Store{
		File: w.file, Directory: people, Survey: survey, History: past, Queue: queue, Subscriptions: &Subscriptions{queue},
		Catalogue: described, writer: w, pools: pools, log: o.Logger, keepEvents: o.KeepEvents, notices: o.ExpiryNotice, clock: observed,
		cleaner: retention.New(o.retention(w, pools, people, observed)),
	}
	if err := people.EnsureCustomerRole(); err != nil {
		return nil, err
	}
	if err := people.EnsureBootstrapToken(directory.Bootstrap{Credential: o.Bootstrap, Life: o.BootstrapLife, Link: o.BootstrapLink}); err != nil {
		return nil, fmt.Errorf("create the first operator's token: %w", err)
	}
	return s, nil
}

// load ends the attempts of the last owner, and reads what the writer remembers. Each step needs the ones before it.
func (o Options) load(w writer, observed *clock.Watch) error {
	t := w.tx
	if err := w.file.Read(t.job((*tx).loadSalt)); err != nil {
		return err
	}
	if err := w.changeBeforeRun((*tx).interruptAttempts); err != nil {
		return fmt.Errorf("mark interrupted attempts: %w", err)
	}
	steps := []func(*tx) error{
		func(t *tx) error { return t.pending.Load(t.Tx) }, func(t *tx) error { return t.catalogued.Load(t.Tx) },
		t.subscriptions.load, (*tx).loadHold, (*tx).loadLastDelivery, (*tx).loadOrder,
	}
	if !o.isCopy {
		steps = append(steps, func(t *tx) error { return loadClock(t, observed) })
	}
	for _, step := range steps {
		if err := w.file.Read(t.job(step)); err != nil {
			return err
		}
	}
	return nil
}

// newSurvey returns the survey of what is pending.
func newSurvey(of *shared, from pools) *pending.Survey {
	return pending.New(pending.Options{
		Count: of.pending, Reads: from.reads, All: from.surveys, Logs: from.logs, Hold: of.committedHold.Load, ReleasedAt: of.releasedAt.Load,
		Statuses: of.subscriptions.get,
	})
}

// directoryHooks are what a change of the directory does to the other tables.
func directoryHooks(t *tx) directory.Hooks {
	return directory.Hooks{
		Audit: func(now *sqlite.Tx, by access.Actor, organization int64, eventType string, about directory.Target, details map[string]any) error {
			return t.with(now).audit(by, organization, eventType, about, details)
		},
		AuditCost: func(now *sqlite.Tx, organization int64, eventType string) (int, error) {
			return auditCost(t.with(now), organization, eventType)
		},
		WebhooksChanged: func(now *sqlite.Tx) { t.with(now).announceChange() },
	}
}

// seedInstance writes what the store itself starts with.
func seedInstance(t *tx, key seal.Key) error {
	salt := make([]byte, 16)
	rand.Read(salt)
	if _, err := t.Exec("INSERT INTO instance (name, value) VALUES ('salt', ?), ('canary', ?)",
		salt, encryption.Canary(seal.NewRing(key))); err != nil {
		return err
	}
	return writeClock(t, clock.State{Seen: time.Now().UnixMilli()})
}

func (t *tx) loadSalt() (err error) {
	t.ids.Salt, err = instance.Value(t, "salt")
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
	feedReaders   = 2

	surveyReaders = 1 // reads every subscription with pending deliveries; 300,000 of them take a second or more
	surveyLimit   = 20 * time.Second
)

// pools are the read connections.
type pools struct {
	reads   *sqlite.Pool // for requests and deliveries
	surveys *sqlite.Pool // reads all pending deliveries
	logs    *scan.Reader // filtered lists, which may read many rows
	replays *scan.Reader // reads of replays, which may take minutes
	feeds   *scan.Reader // reads of feeds, and previews of filters
}

func openPools(ctx context.Context, file *sqlite.File) (p pools, err error) {
	var logs, replays, feeds *sqlite.Pool
	for _, of := range []struct {
		pool        **sqlite.Pool
		connections int
		limit       time.Duration
	}{
		{&p.reads, readers, readLimit}, {&logs, logReaders, logLimit}, {&replays, replayReaders, logLimit}, {&feeds, feedReaders, logLimit},
		{&p.surveys, surveyReaders, surveyLimit},
	} {
		if *of.pool, err = file.Pool(ctx, of.connections, of.limit); err != nil {
			return p, err
		}
	}
	p.logs, p.replays = scan.NewReader(logs, logReaders, logWait), scan.NewReader(replays, replayReaders, 0)
	p.feeds = scan.NewReader(feeds, feedReaders, logWait)
	return p, nil
}

// drain waits for the end of all log reads. New ones wait until resume is called.
func (p pools) drain(ctx context.Context) (resume func(), drained bool) {
	var resumes []func()
	drained = true
	for _, r := range []*scan.Reader{p.logs, p.replays, p.feeds} {
		if drained {
			var one func()
			one, drained = r.Drain(ctx)
			resumes = append(resumes, one)
		}
	}
	return func() {
		for _, one := range resumes {
			one()
		}
	}, drained
}

// writeProbe writes other bytes than the last probe, because SQLite skips a write that changes nothing.
func writeProbe(t *sqlite.Tx, size int) error {
	value := bytes.Repeat(binary.BigEndian.AppendUint64(nil, uint64(t.Now())), size/8)
	_, err := t.Exec("INSERT INTO instance (name, value) VALUES ('probe', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", value)
	return err
}
