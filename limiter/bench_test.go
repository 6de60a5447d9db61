package limiter_test

import (
	"math/rand/v2"
	"testing"

	"github.com/keyhook/keyhook/limiter"
)

// The goal of the project: at most 80 ns and no allocation with 10,000 keys on two processors (go test -bench . -cpu
// 2).

const benchKeys = 10_000

func BenchmarkTake(b *testing.B) {
	l := limiter.New(limiter.Window)
	for key := range int64(benchKeys) {
		l.Take(key, 1<<40)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		keys := rand.New(rand.NewPCG(1, rand.Uint64()))
		for pb.Next() {
			l.Take(keys.Int64N(benchKeys), 1<<40)
		}
	})
}

// With one key, all processors wait for one lock.
func BenchmarkTakeOneKey(b *testing.B) {
	l := limiter.New(limiter.Window)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Take(1, 1<<40)
		}
	})
}

// Every request is the first of its key. This is the amortised cost of growth.
func BenchmarkTakeFirst(b *testing.B) {
	l := limiter.New(limiter.Window)
	b.ReportAllocs()
	for key := range int64(b.N) {
		l.Take(key, 1)
	}
}

func BenchmarkPeek(b *testing.B) {
	l := limiter.New(limiter.Window)
	for key := range int64(benchKeys) {
		l.Take(key, 1<<40)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		keys := rand.New(rand.NewPCG(1, rand.Uint64()))
		for pb.Next() {
			l.Peek(keys.Int64N(benchKeys), 1<<40)
		}
	})
}
