package principal

import (
	"sync"
	"sync/atomic"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// The size of each cache. To read a principal from the file takes about 20 µs.
const (
	principalShards  = 64 // a power of two
	principalsPerOne = 16_384 / principalShards
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
	mu    sync.RWMutex
	known map[access.Digest]*knownPrincipal
}

// knownPrincipal is an entry of the cache. It is never changed.
type knownPrincipal struct {
	access.Principal
	generation uint64 // before the principal was read
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

// keep stores p. If the shard is full, p replaces an arbitrary entry.
func (c *principals) keep(d access.Digest, p *knownPrincipal) {
	shard := &c[d[0]%principalShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.known == nil {
		shard.known = map[access.Digest]*knownPrincipal{}
	}
	if _, again := shard.known[d]; !again && len(shard.known) >= principalsPerOne {
		for other := range shard.known {
			delete(shard.known, other)
			break
		}
	}
	shard.known[d] = p
}

// PrincipalGeneration returns a number that grows with every write that may change a principal. A principal that was read after a
// number is exact while the number stays the same, except for the time at which its credential expires.
func (r *Reader) PrincipalGeneration() uint64 { return r.cache.generation.Load() }

// OutdatePrincipals makes every entry of the cache invalid once the transaction is committed.
func (r *Reader) OutdatePrincipals(t *sqlite.Tx) {
	t.OnCommit(func() { r.cache.generation.Add(1) })
}
