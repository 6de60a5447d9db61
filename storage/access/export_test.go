package access

// Len returns the number of keys.
func (s Scope) Len() int { return len(s.keys) }
