package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Open locks, checks and opens the file, creating it where there is none. A process that is root takes on the rights of the
// owner of the database first, for good (see disk.Locate). Open refuses with a sentence that says what to do: ErrInUse, ErrNewerSchema, ErrSchema, ErrForeignFile, ErrLost, ErrDamaged, ErrKey, ErrKeyMissing, or one of package
// disk. A file that is refused is left as it was.
func Open(ctx context.Context, o Options) (_ *Store, err error) {
	s := &Store{
		policy:       o.Policy,
		retention:    retention{events: o.KeepEvents, audit: o.KeepAudit},
		observer:     o.Observer,
		upgrades:     o.knownUpgrades(),
		log:          o.Logger,
		jobs:         newWriteQueue(),
		stopped:      make(chan struct{}),
		replaying:    make(chan struct{}, 1),
		sweeps:       newSweeps(),
		firstRequest: newFirstRequest(),
		pauses:       make(chan func()),
		logBounds:    defaultLogBounds,
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
	s.condition = newCondition(s.log)
	if o.Synchronous == "" {
		o.Synchronous = Full
	}
	path, owner, err := disk.Resolve(o.Path)
	if err != nil {
		return nil, err
	}
	if self := disk.Self(); self.UID != owner.UID {
		s.log.Info("this process was started as root and continues as the owner of the database", "database", path, "uid", owner.UID, "gid", owner.GID)
	}
	if err := owner.Become(); err != nil {
		return nil, err
	}
	s.path, o.Path = path, path
	if err := s.place(); err != nil {
		return nil, err
	}
	if s.lock, err = lock(o.Path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.open(ctx, o); err != nil {
		return nil, fmt.Errorf("open %s: %w", o.Path, unreadable(err))
	}
	return s, nil
}

// place looks at where the file is, before anything is made there.
func (s *Store) place() error {
	mount, err := disk.MountOf(s.path)
	if err != nil {
		s.log.Warn("the file system of the database cannot be found out", "error", err)
	}
	if warning := mount.Passing(); warning != "" {
		s.log.Warn(warning, "database", s.path, "mount", mount.Point, "type", mount.Type)
	}
	if err := errors.Join(mount.CheckMount(s.path), disk.Check(s.path)); err != nil {
		return err
	}
	if size, err := fileSize(s.path); err != nil || size > 0 {
		return err
	}
	return mayBegin(s.path)
}

// mayBegin refuses a first start in an empty file that somebody else has made, and who could read what is written to it, or
// on a disk that is too full. Without the latter, the start would fail midway, and each time at another file.
func mayBegin(path string) error {
	if exists(path) && !disk.IsOwn(path) {
		return fault.Advise(fmt.Errorf("%w: %s is empty and was not made by this process (%s), or has another name too", disk.ErrAccess, path, disk.Self()),
			"move it away")
	}
	dir := filepath.Dir(path)
	if free, _, known := disk.Free(dir); known && free < firstStart {
		return fault.Advise(fmt.Errorf("%w: a first start needs %d KB in %s, where %d KB are free", disk.ErrAccess, firstStart>>10, dir, free>>10),
			"make room there, or set storage.path to a file on another disk")
	}
	if free, known := disk.FreeFiles(dir); known && free < firstFiles {
		return fault.Advise(fmt.Errorf("%w: a first start makes up to %d files in %s, where the file system has room for %d (df -i)", disk.ErrAccess, firstFiles, dir, free),
			"remove some there, or set storage.path to a file on another disk")
	}
	return nil
}

// What a first start must find free. It writes some 530 KB: the database and its write-ahead log.
const (
	firstStart = 1 << 20 // bytes
	firstFiles = 8
)

// open does what Open does once the lock is held, in the order in which each step relies on the one before.
func (s *Store) open(ctx context.Context, o Options) error {
	size, err := fileSize(o.Path)
	if err != nil {
		return err
	}
	if exists(o.Path) {
		if err := s.lock.hold(o.Path); err != nil {
			return err
		}
	}
	wasLeftOpen, err := leftOpen(o.Path)
	if err != nil {
		return err
	}
	if o.findKeys == nil {
		o.findKeys = findKeys
	}
	found, err := o.findKeys(o, size == 0)
	if err == nil && size == 0 && !found.file.fresh && readLock(s.lock.name).made {
		return lostUnderLock(o.Path)
	}
	if err != nil {
		return err
	}
	s.created = true
	if size > 0 {
		if err := s.identify(ctx, o.Schema, size, wasLeftOpen); err != nil {
			return err
		}
	}
	if s.lock.file == nil {
		if err := s.begin(); err != nil {
			return err
		}
	}
	more := []string{"_txlock=immediate"}
	if s.created {
		more = append(more, "_auto_vacuum=INCREMENTAL") // which is for life, and writes
	}
	name, err := dsn(o.Path, writerPragmas(o.Synchronous), more...)
	if err != nil {
		return err
	}
	if s.writer, err = connect(ctx, name, 1, writerPragmas(o.Synchronous)); err != nil {
		return err
	}
	conn, err := s.writer.Connx(ctx)
	if err != nil {
		return err
	}
	s.tx = newTx(conn)
	if s.created {
		s.ring = seal.NewRing(found.keys[0])
		if err := s.found(o); err != nil {
			return fmt.Errorf("create database: %w", err)
		}
	}
	if err := s.recognize(found); err != nil {
		return err
	}
	if err := found.file.keep(); err != nil {
		return err
	}
	if err := writeLock(s.lock.name, true); err != nil {
		return disk.Explain(o.Path+disk.Lock, err)
	}
	if err := s.upgrade(ctx, o); err != nil {
		return err
	}
	if !o.offline { // whose policy is not the one by which they go on
		if err := s.alone(s.interruptSending); err != nil {
			return fmt.Errorf("mark interrupted attempts: %w", err)
		}
	}
	if err := errors.Join(s.pending.load(s.tx), s.loadHold()); err != nil {
		return err
	}
	if !o.offline && !o.expendable { // which run no server on the file
		if err := s.loadClock(); err != nil {
			return err
		}
	}
	if err := s.loadOrder(); err != nil {
		return err
	}
	if err := s.invite(o); err != nil {
		return fmt.Errorf("make the first operator's token: %w", err)
	}
	if err := s.openKeeper(ctx, o); err != nil {
		return err
	}
	if err := s.openPools(ctx); err != nil {
		return err
	}
	return s.remember()
}

// begin makes an empty file for SQLite to fill, and locks it. SQLite would give it the mode that the umask leaves; its own
// files get that of the database.
func (s *Store) begin() error {
	file, err := disk.Create(s.path)
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), s.lock.hold(s.path))
}

// openKeeper opens the connection that makes checkpoints.
func (s *Store) openKeeper(ctx context.Context, o Options) error {
	name, err := dsn(s.path, keeperPragmas(o.Synchronous), "_txlock=immediate")
	if err != nil {
		return err
	}
	s.keeper, err = connect(ctx, name, 1, keeperPragmas(o.Synchronous))
	return err
}

// openPools opens the connections that read.
func (s *Store) openPools(ctx context.Context) error {
	name, err := dsn(s.path, readerPragmas())
	if err != nil {
		return err
	}
	note := func(err error) { s.condition.note(byReading, err) }
	for _, of := range []struct {
		connections int
		limit       time.Duration
	}{{readers, readLimit}, {logReaders, logLimit}, {replayReaders, logLimit}, {surveyReaders, surveyLimit}} {
		p, err := openPool(ctx, name, of.connections, of.limit, note)
		if err != nil {
			return err
		}
		s.pools = append(s.pools, p)
	}
	s.reads, s.surveys = s.pools[0], s.pools[3]
	s.logs = newLogReader(s.pools[1], logReaders, &turns{most: logReads, wait: logWait})
	s.replays = newLogReader(s.pools[2], replayReaders, &turns{most: logReads})
	return nil
}

// fileSize is 0 where there is no file.
func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, disk.Explain(path, err)
	}
	if !info.Mode().IsRegular() {
		return 0, fault.Advise(fmt.Errorf("%w: %s is not a regular file", ErrForeignFile, path),
			"set storage.path to another")
	}
	return info.Size(), nil
}
