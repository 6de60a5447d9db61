package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Open locks, checks and opens the file, creating it where there is none. It refuses with a sentence that says what to
// do: ErrInUse, ErrNewerSchema, ErrSchema, ErrForeignFile, ErrLost, ErrDamaged, ErrKey, ErrKeyMissing, or one of package
// disk. A file that is refused is left as it was.
func Open(ctx context.Context, o Options) (_ *Store, err error) {
	s := &Store{
		policy:    o.Policy,
		retention: retention{events: o.KeepEvents, audit: o.KeepAudit},
		observer:  o.Observer,
		rekeying:  o.rekeying,
		upgrades:  o.knownUpgrades(),
		log:       o.Logger,
		jobs:      newWriteQueue(),
		stopped:   make(chan struct{}),
		replaying: make(chan struct{}, 1),
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
	if o.Path, err = disk.Resolve(o.Path); err != nil {
		return nil, err
	}
	s.path = o.Path
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
		s.log.Warn("it cannot be told what file system the database is on", "error", err)
	}
	if warning := mount.Passing(); warning != "" {
		s.log.Warn(warning, "database", s.path, "mount", mount.Point, "type", mount.Type)
	}
	return errors.Join(mount.CheckMount(s.path), disk.Check(s.path))
}

// open does what Open does once the lock is held, in the order in which each step relies on the one before.
func (s *Store) open(ctx context.Context, o Options) error {
	size, err := fileSize(o.Path)
	if err != nil {
		return err
	}
	wasLeftOpen, err := leftOpen(o.Path)
	if err != nil {
		return err
	}
	ring, file, err := openRing(o, size == 0)
	if err == nil && size == 0 && !file.fresh && readLock(s.lock).made {
		return lostUnderLock(o.Path)
	}
	if err != nil {
		return err
	}
	s.ring = ring
	s.created = true
	if size > 0 {
		if err := s.identify(ctx, o.Schema, size, wasLeftOpen); err != nil {
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
		if err := s.found(o); err != nil {
			return fmt.Errorf("create database: %w", err)
		}
	}
	if err := s.recognize(file); err != nil {
		return err
	}
	if err := file.keep(); err != nil {
		return err
	}
	if err := writeLock(s.lock, true); err != nil {
		return disk.Explain(o.Path+".lock", err)
	}
	if err := s.upgrade(ctx, o); err != nil {
		return err
	}
	if err := s.goOnChanging(); err != nil {
		return err
	}
	if !s.created {
		if s.invited, err = s.invite(o.Bootstrap); err != nil {
			return fmt.Errorf("make the first operator's token: %w", err)
		}
	}
	if s.rekeying == nil { // which knows no policy by which they would go on
		if err := s.alone(s.interruptSending); err != nil {
			return fmt.Errorf("mark interrupted attempts: %w", err)
		}
	}
	if err := errors.Join(s.pending.load(s.tx), s.loadHold()); err != nil {
		return err
	}
	if err := s.tx.get(&s.lastEvent, "SELECT coalesce(max(id), 0) FROM events"); err != nil {
		return fmt.Errorf("find newest event: %w", err)
	}
	if s.keeper, err = connect(ctx, name, 1, writerPragmas(o.Synchronous)); err != nil {
		return err
	}
	if name, err = dsn(o.Path, readerPragmas()); err != nil {
		return err
	}
	note := func(err error) { s.condition.note(byReading, err) }
	if s.reads, err = openPool(ctx, name, readers, readLimit, note); err != nil {
		return err
	}
	if s.logs, err = openPool(ctx, name, logReaders, logLimit, note); err != nil {
		return err
	}
	return s.remember()
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
		return 0, fmt.Errorf("%w: %s is not a regular file; set storage.path to another", ErrForeignFile, path)
	}
	return info.Size(), nil
}
