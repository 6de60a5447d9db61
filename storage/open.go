package storage

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/audit"
	"github.com/keyhook/keyhook/storage/catalogue"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/directory"
	"github.com/keyhook/keyhook/storage/encryption"
	"github.com/keyhook/keyhook/storage/fanout"
	"github.com/keyhook/keyhook/storage/feed"
	"github.com/keyhook/keyhook/storage/history"
	"github.com/keyhook/keyhook/storage/instance"
	"github.com/keyhook/keyhook/storage/pending"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/retention"
	"github.com/keyhook/keyhook/storage/scan"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/subscription"
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
	memory := queue.NewMemory(o.Policy, o.Observer, o.Logger)
	file, key, err := o.openFile(ctx, memory)
	if err != nil {
		return nil, err
	}
	s, err := o.assemble(ctx, file, memory, key)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", file.Path(), errors.Join(sqlite.Advise(err), file.Close()))
	}
	return s, nil
}

func (o Options) complete() (Options, error) {
	o.Policy = cmp.Or(o.Policy, webhook.DefaultPolicy())
	if o.Policy.MaxAttempts > queue.MaxAttempts {
		return o, fmt.Errorf("policy of %d attempts: a delivery may have at most %d", o.Policy.MaxAttempts, queue.MaxAttempts)
	}
	o.Observer, o.Logger = cmp.Or[Observer](o.Observer, noObserver{}), cmp.Or(o.Logger, slog.Default())
	return o, nil
}

func (o Options) openFile(ctx context.Context, memory *queue.Memory) (*sqlite.File, seal.Key, error) {
	e, found := o.engine()
	e.Create = func(t *sqlite.Tx) error {
		if o.Bootstrap == (access.Credential{}) {
			return errors.New("a new database needs a bootstrap credential")
		}
		found.key = found.keys.First()
		return errors.Join(seedInstance(t, found.key), directory.Seed(t))
	}
	e.Made = func() error { return found.keys.Keep() }
	memory.Attach(&e)
	e.Committed, e.Probe = o.Observer.Committed, writeProbe
	file, err := sqlite.Open(ctx, e)
	return file, found.key, err
}

// assemble ends the attempts of the last owner, reads what the writer remembers, and makes the parts of the store.
func (o Options) assemble(ctx context.Context, file *sqlite.File, memory *queue.Memory, key seal.Key) (*Store, error) {
	if err := memory.Load(file); err != nil {
		return nil, err
	}
	observed := clock.NewWatch(o.Logger)
	if !o.isCopy {
		var saved clock.State
		err := file.Read(func(t *sqlite.Tx) (err error) {
			_, err = instance.Load(t, clockName, &saved)
			return err
		})
		if err != nil {
			return nil, err
		}
		observed.Start(saved)
	}
	pools, err := openPools(ctx, file)
	if err != nil {
		return nil, err
	}
	keys := seal.NewRing(key)
	past := history.New(history.Options{
		Reads: pools.reads, Logs: pools.logs, IDs: memory.IDs, Policy: o.Policy, Pending: memory.Pending(),
		Hold: memory.Hold, KeepEvents: o.KeepEvents, TrustedTime: observed.TrustedTime,
	})
	events := queue.New(queue.Options{File: file, Memory: memory, Keys: keys, History: past, Reads: pools.reads, Replays: pools.replays})
	people := directory.New(file, pools.reads, pools.logs, memory.Quotas, directory.Hooks{
		Audit: events.Audit, AuditCost: events.AuditCost, WebhooksChanged: events.AllSubscriptionsChanged,
	})
	described := catalogue.New(file, pools.reads, memory.Catalogued, func(t *sqlite.Tx, by access.Actor, action, eventType string, details map[string]any) error {
		return events.Audit(t, by, 0, action, audit.Target{Type: access.KindEventType, ID: eventType}, details)
	})
	subscriptions := subscription.New(file, events, memory, keys, o.Logger)
	cleaner := retention.New(retention.Options{
		File: file, Reads: pools.reads, Logs: pools.logs, Directory: people, Queue: events, Subscriptions: subscriptions, IDs: memory.IDs,
		Logger: o.Logger, KeepEvents: o.KeepEvents, KeepAudit: o.KeepAudit, TrustedTime: observed.TrustedTime,
	})
	if err := people.EnsureBootstrapToken(directory.Bootstrap{Credential: o.Bootstrap, Life: o.BootstrapLife, Link: o.BootstrapLink}); err != nil {
		return nil, fmt.Errorf("create the first operator's token: %w", err)
	}
	return &Store{
		File: file, Directory: people, Survey: newSurvey(memory, pools), History: past, Catalogue: described, Queue: events,
		Subscriptions: subscriptions, Feeds: feed.New(events, past, pools.reads, pools.feeds, memory.IDs),
		pools: pools, memory: memory, keySet: o.EncryptionKey != "", log: o.Logger, notices: o.ExpiryNotice, cleaner: cleaner, clock: observed,
	}, nil
}

func newSurvey(memory *queue.Memory, from pools) *pending.Survey {
	return pending.New(pending.Options{
		Count: memory.Pending(), Reads: from.reads, All: from.surveys, Logs: from.logs, Hold: memory.Hold, ReleasedAt: memory.ReleasedAt,
		Statuses: memory.SubscriptionCounts,
	})
}

func seedInstance(t *sqlite.Tx, key seal.Key) error {
	salt := make([]byte, 16)
	rand.Read(salt)
	if err := t.Exec("INSERT INTO instance (name, value) VALUES ('salt', ?), ('canary', ?)",
		salt, encryption.Canary(seal.NewRing(key))); err != nil {
		return err
	}
	return instance.Save(t, clockName, clock.State{Seen: time.Now().UnixMilli()})
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

type pools struct {
	reads   *sqlite.Pool // for requests and deliveries
	surveys *sqlite.Pool // reads all pending deliveries
	logs    *scan.Reader // filtered lists, which may read many rows
	replays *scan.Reader // reads of replays, which may take minutes
	feeds   *scan.Reader // reads of feeds, and previews of filters
}

func openPools(ctx context.Context, file *sqlite.File) (p pools, err error) {
	open := func(connections int, limit time.Duration) *sqlite.Pool {
		pool, failed := file.Pool(ctx, connections, limit)
		err = errors.Join(err, failed)
		return pool
	}
	p.reads, p.surveys = open(readers, readLimit), open(surveyReaders, surveyLimit)
	p.logs = scan.NewReader(open(logReaders, logLimit), logReaders, logWait)
	p.replays = scan.NewReader(open(replayReaders, logLimit), replayReaders, 0)
	p.feeds = scan.NewReader(open(feedReaders, logLimit), feedReaders, logWait)
	return p, err
}

// drain waits for the end of all log reads. New ones wait until resume is called.
func (p pools) drain(ctx context.Context) (resume func(), drained bool) {
	resume = func() {}
	for _, r := range []*scan.Reader{p.logs, p.replays, p.feeds} {
		resumeOthers := resume
		resumeOne, ok := r.Drain(ctx)
		if !ok {
			return resume, false
		}
		resume = func() { resumeOne(); resumeOthers() }
	}
	return resume, true
}

// writeProbe writes other bytes than the last probe, because SQLite skips a write that changes nothing.
func writeProbe(t *sqlite.Tx, size int) error {
	value := bytes.Repeat(binary.BigEndian.AppendUint64(nil, uint64(t.Now())), size/8)
	return t.Exec("INSERT INTO instance (name, value) VALUES ('probe', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", value)
}
