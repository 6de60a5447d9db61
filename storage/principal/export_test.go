package principal

import "reflect"

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

// Statements are the statements that read a principal, by the credential, and Row is the type of their rows.
var (
	Statements = map[string]string{
		"key": keyPrincipal, "key by id": keyPrincipalByID, "token": tokenPrincipal, "session": sessionPrincipal, "link": linkPrincipal, "member": memberPrincipal,
	}
	Row = reflect.TypeFor[principalRow]()
)
