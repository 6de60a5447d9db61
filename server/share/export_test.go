package share

// Addresses returns how many networks the listener remembers.
func (l *Listener) Addresses() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.clients)
}

// Holders returns how many organizations and networks the budget remembers.
func (m *Memory) Holders() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.reserved) + len(m.clients)
}
