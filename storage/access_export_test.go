package storage

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
