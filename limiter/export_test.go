package limiter

// Len returns the number of windows in memory, including ended ones.
func (l *Limiter) Len() int {
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += len(s.young.windows) + len(s.old.windows)
		s.mu.Unlock()
	}
	return n
}
