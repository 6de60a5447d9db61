package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// Restore puts a copy in the place of the database that o names, with its queue held: what the copy takes for pending may
// have been delivered since it was made, so nothing is sent until an operator has looked. Until the copy opens with o as
// serve would open it, nothing is touched. It refuses with ErrKey, ErrKeyMissing, or as sqlite.Restore does.
func Restore(ctx context.Context, o Options, name string) (r backup.Restored, err error) {
	var from string
	r.Database, r.Aside, err = sqlite.Restore(ctx, sqlite.RestoreOptions{
		Path: o.Path, From: name, Copies: copiesOf(&r.Contents),
		Accept: func(path, found string) error {
			from, o.Path = found, path
			keys, err := findKeyOf(o, from, r.KeyID)
			o.findKeys = func(Options, sqlite.Start) (encryptionKeys, error) { return encryptionKeys{keys: keys.keys}, nil }
			return err
		},
		Arrange: func(ctx context.Context, path string) error {
			o.Path, o.copied = path, true
			o.Synchronous, o.Bootstrap = Full, access.Credential{}
			s, err := Open(ctx, o)
			if err != nil {
				return err
			}
			if err := errors.Join(s.noteRestored(ctx, from, &r), s.Close()); err != nil {
				return fmt.Errorf("hold the queue: %w", err)
			}
			return nil
		},
	})
	return r, err
}

// noteRestored notes in a copy that it was restored. The news goes to those who subscribe to it, once the queue is released.
func (s *Store) noteRestored(ctx context.Context, from string, r *backup.Restored) error {
	name := filepath.Base(from)
	if err := s.alone(func(t *tx) error {
		var organization int64
		if err := t.Get(&organization, "SELECT min(id) FROM organizations"); err != nil {
			return err
		}
		if err := s.holdQueue(t, "restored from "+name); err != nil {
			return err
		}
		return s.audit(t, access.System(organization), 0, access.DatabaseRestored, auditTarget{Type: "backup", ID: name},
			map[string]any{"events": r.Events, "deliveries": r.Deliveries, "pending_deliveries": r.Pending})
	}); err != nil {
		return err
	}
	q, err := s.Queue(ctx)
	for _, w := range q.Largest[:min(len(q.Largest), 10)] {
		r.Waiting = append(r.Waiting, backup.Waiting{SubscriptionID: w.SubscriptionID, URL: w.URL, Pending: w.Pending})
	}
	return err
}
