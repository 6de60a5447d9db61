package storage

import (
	"context"
	"errors"
	"time"
)

// CachedKeys counts the principals of keys that are in memory.
func (s *Store) CachedKeys() (n int) {
	for i := range s.principals.keys {
		shard := &s.principals.keys[i]
		shard.mu.RLock()
		n += len(shard.known)
		shard.mu.RUnlock()
	}
	return n
}

// ForgetPrincipals has all principals read again, as a write does.
func (s *Store) ForgetPrincipals() { s.principals.generation.Add(1) }

// MoveUses changes when keys and tokens were last used, as a clock that was wrong does.
func (s *Store) MoveUses(ctx context.Context, by time.Duration) error {
	return s.change(ctx, func(t *tx) error {
		_, err1 := t.Exec("UPDATE api_keys SET last_used_at = last_used_at + ?", by.Milliseconds())
		_, err2 := t.Exec("UPDATE access_tokens SET last_used_at = last_used_at + ?", by.Milliseconds())
		return errors.Join(err1, err2)
	})
}
