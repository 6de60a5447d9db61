package rivals_test

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/keyhook/keyhook/limiter"
)

const keys = 10_000

// names are the keys of those who want text.
var names = func() (names [keys]string) {
	for i := range names {
		names[i] = "key_" + strconv.Itoa(1_000_000+i)
	}
	return names
}()

// rivals make what takes one request of a key, and says whether it may pass. The limit is that of each key in a minute.
var rivals = []struct {
	name string
	make func(b *testing.B, limit int) (take func(key int) bool)
}{
	{"none", func(*testing.B, int) func(int) bool { // what drawing the keys costs
		return nil
	}},
	{"keyhook", func(_ *testing.B, limit int) func(int) bool {
		l := limiter.New(limiter.Window)
		return func(key int) bool { return l.Take(int64(key), int64(limit)).Allowed }
	}},
	{"sethvargo", func(b *testing.B, limit int) func(int) bool {
		store, err := memorystore.New(&memorystore.Config{Tokens: uint64(limit), Interval: time.Minute, InitialAlloc: keys})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = store.Close(b.Context()) })
		ctx := b.Context()
		return func(key int) bool {
			_, _, _, allowed, err := store.Take(ctx, names[key])
			return allowed && err == nil
		}
	}},
	{"ulule", func(b *testing.B, limit int) func(int) bool {
		l := ulule.New(memory.NewStore(), ulule.Rate{Period: time.Minute, Limit: int64(limit)})
		ctx := b.Context()
		return func(key int) bool {
			state, err := l.Get(ctx, names[key])
			return !state.Reached && err == nil
		}
	}},
	{"throttled", func(b *testing.B, limit int) func(int) bool {
		store, err := memstore.NewCtx(0)
		if err != nil {
			b.Fatal(err)
		}
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerMin(limit), MaxBurst: limit - 1})
		if err != nil {
			b.Fatal(err)
		}
		ctx := b.Context()
		return func(key int) bool {
			limited, _, err := l.RateLimitCtx(ctx, names[key], 1)
			return !limited && err == nil
		}
	}},
	{"x-time-rate", func(_ *testing.B, limit int) func(int) bool {
		var l buckets
		return func(key int) bool { return l.of(int64(key), limit).Allow() }
	}},
}

// buckets are limiters of x/time/rate by key, in as many shards as ours.
type buckets [256]struct {
	mu    sync.RWMutex
	byKey map[int64]*rate.Limiter
	_     [96]byte // two cache lines, as ours
}

func (b *buckets) of(key int64, limit int) *rate.Limiter {
	shard := &b[uint64(key)*0x9e3779b97f4a7c15>>56]
	shard.mu.RLock()
	l := shard.byKey[key]
	shard.mu.RUnlock()
	if l != nil {
		return l
	}
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if l := shard.byKey[key]; l != nil {
		return l
	}
	if shard.byKey == nil {
		shard.byKey = map[int64]*rate.Limiter{}
	}
	l = rate.NewLimiter(rate.Every(time.Minute/time.Duration(limit)), limit)
	shard.byKey[key] = l
	return l
}

// run has all procs take requests of keys drawn at random, after each key has been seen, and checks that they pass or not
// as they must.
func run(b *testing.B, limit int, pass bool) {
	for _, r := range rivals {
		b.Run(r.name, func(b *testing.B) {
			take := r.make(b, limit)
			if take == nil {
				take = func(int) bool { return pass }
			}
			for key := range keys {
				take(key)
			}
			var wrong atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				draw := rand.New(rand.NewPCG(1, rand.Uint64()))
				mine := int64(0)
				for pb.Next() {
					if take(draw.IntN(keys)) != pass {
						mine++
					}
				}
				wrong.Add(mine)
			})
			// Those who let through at an even pace let a key through now and then.
			if n := wrong.Load(); n > 0 && (pass || n > keys) {
				b.Errorf("%d of %d requests were judged otherwise", n, b.N)
			}
		})
	}
}

// Every request passes.
func BenchmarkBelowLimit(b *testing.B) { run(b, 10_000_000, true) }

// Every key has used up its limit.
func BenchmarkAtLimit(b *testing.B) { run(b, 1, false) }
