package principal

import (
	"sync"
	"sync/atomic"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// The size of each cache. To read a principal from the file takes about 80 µs with 20 permissions, and 300 µs with 200. A permission
// takes 40 bytes, so 500,000 of them take 20 MB.
const (
	principalShards   = 64 // a power of two
	principalsPerOne  = 16_384 / principalShards
	permissionsPerOne = 500_000 / principalShards
)

// cache keeps the principals of recent requests. It is exact: every write that could change a principal increments
// the generation after its commit and before it returns. Entries of another generation are not used. The zero value is empty.
// Each kind of credential has its own map, so one kind is never accepted as another.
type cache struct {
	generation atomic.Uint64
	keys       principals
	tokens     principals
	sessions   principals
	identities principals // by identityKey
	members    principals // by identityKey of the user's id, for sessions that switch
}

type principals [principalShards]struct {
	mu          sync.RWMutex
	known       map[access.Digest]*knownPrincipal
	permissions int // of all of them
}

// knownPrincipal is an entry of the cache. It is never changed.
type knownPrincipal struct {
	access.Principal
	generation uint64 // before the principal was read
}

// size is how many permissions an entry keeps in memory.
func (p *knownPrincipal) size() int {
	size := p.Permissions.Len()
	if p.Key != nil {
		size += p.Key.Scope.Len()
	}
	return size
}

// find returns nil if there is no entry of the generation.
func (c *principals) find(generation uint64, d access.Digest) *knownPrincipal {
	shard := &c[d[0]%principalShards]
	shard.mu.RLock()
	p := shard.known[d]
	shard.mu.RUnlock()
	if p == nil || p.generation != generation {
		return nil
	}
	return p
}

// keep stores p. If the shard is full, p replaces arbitrary entries.
func (c *principals) keep(d access.Digest, p *knownPrincipal) {
	shard := &c[d[0]%principalShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.known == nil {
		shard.known = map[access.Digest]*knownPrincipal{}
	}
	if before, again := shard.known[d]; again {
		delete(shard.known, d)
		shard.permissions -= before.size()
	}
	for other, known := range shard.known {
		if len(shard.known) < principalsPerOne && shard.permissions+p.size() <= permissionsPerOne {
			break
		}
		delete(shard.known, other)
		shard.permissions -= known.size()
	}
	shard.known[d] = p
	shard.permissions += p.size()
}

// PrincipalGeneration returns a number that grows with every write that may change a principal. A principal that was read after a
// number is exact while the number stays the same, except for the time at which its credential expires.
func (r *Reader) PrincipalGeneration() uint64 { return r.cache.generation.Load() }

// OutdatePrincipals makes every entry of the cache invalid once the transaction is committed.
func (r *Reader) OutdatePrincipals(t *sqlite.Tx) { t.OnCommit(func() { r.cache.generation.Add(1) }) }
