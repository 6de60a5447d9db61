package principal

// CachedKeys counts the principals of keys that are in memory.
func (r *Reader) CachedKeys() (n int) {
	for i := range r.cache.keys {
		shard := &r.cache.keys[i]
		shard.mu.RLock()
		n += len(shard.known)
		shard.mu.RUnlock()
	}
	return n
}

// ForgetPrincipals has all principals read again, as a write does.
func (r *Reader) ForgetPrincipals() { r.cache.generation.Add(1) }
