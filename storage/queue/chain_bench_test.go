package queue_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// chain is a watcher that begins and records the attempts of all deliveries, like a dispatcher whose receivers respond at
// once. It takes what waits, up to a hundred at a time.
type chain struct {
	b     *testing.B
	store *storage.Store
	epoch int64
	born  bool // new deliveries begin in the transaction that creates them

	fresh, begun chan webhook.Job
	recorded     sync.WaitGroup // has one for each delivery that is to be recorded
	running      sync.WaitGroup
}

func (c *chain) TakePlace(int64, int64) bool { return c.born }
func (*chain) ReturnPlace(int64, int64)      {}
func (*chain) BodiesChanged([]int64)         {}
func (*chain) SubscriptionsChanged(...int64) {}
func (c *chain) DeliveriesCreated(jobs []webhook.Job) {
	for _, j := range jobs {
		if j.Begun {
			c.begun <- j
		} else {
			c.fresh <- j
		}
	}
}

// some returns the jobs that wait in a channel, at least one and up to a hundred. It returns none after the channel was
// closed.
func some(jobs <-chan webhook.Job, batch []webhook.Job) []webhook.Job {
	job, ok := <-jobs
	for batch = batch[:0]; ok; {
		batch = append(batch, job)
		if len(batch) == 100 {
			break
		}
		select {
		case job, ok = <-jobs:
		default:
			return batch
		}
	}
	return batch
}

func (c *chain) begin() {
	var starts []webhook.Start
	for batch := some(c.fresh, nil); len(batch) > 0; batch = some(c.fresh, batch) {
		starts = starts[:0]
		for _, j := range batch {
			starts = append(starts, webhook.Start{Delivery: j.Delivery, Subscription: j.Subscription, Epoch: c.epoch, Number: 1})
		}
		ids, err := c.store.Queue.Begin(c.b.Context(), starts)
		if err != nil {
			c.b.Error(err)
		}
		for i, j := range batch {
			if ids[i] == 0 {
				c.b.Error("an attempt was refused")
			}
			c.begun <- j
		}
	}
	close(c.begun)
}

func (c *chain) record() {
	status := 200
	var results []webhook.Result
	for batch := some(c.begun, nil); len(batch) > 0; batch = some(c.begun, batch) {
		results = results[:0]
		for _, j := range batch {
			results = append(results, webhook.Result{
				Attempt: j.Delivery<<8 | 1, Delivery: j.Delivery, Subscription: j.Subscription, Epoch: c.epoch, Number: 1,
				Succeeded: true, ResponseStatus: &status, DurationMS: 12,
			})
		}
		if _, err := c.store.Queue.Record(c.b.Context(), results...); err != nil {
			c.b.Error(err)
		}
		c.recorded.Add(-len(batch))
	}
}

// processorTime returns the processor time of the process in microseconds.
func processorTime(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Sec+u.Stime.Sec)*1e6 + float64(u.Utime.Usec+u.Stime.Usec)
}

// BenchmarkQueueChain measures the whole way of an event in the store: 64 publishers, and all attempts succeed at once.
func BenchmarkQueueChain(b *testing.B) {
	for _, born := range []bool{false, true} {
		for _, n := range []int{1, 10} {
			b.Run("born="+strconv.FormatBool(born)+"/subscriptions="+strconv.Itoa(n), func(b *testing.B) { benchmarkChain(b, n, born) })
		}
	}
}

func benchmarkChain(b *testing.B, subscriptions int, born bool) {
	store, owner := openDurable(b, subscriptions)
	subs, err := store.SubscriptionList(b.Context(), owner.Organization.RowID, "", 0, 1)
	if err != nil {
		b.Fatal(err)
	}
	c := &chain{b: b, store: store, epoch: subs[0].Epoch, born: born, fresh: make(chan webhook.Job, 1<<20), begun: make(chan webhook.Job, 1<<20)}
	store.Queue.Watch(c)
	c.running.Go(c.begin)
	c.running.Go(c.record)
	c.recorded.Add(b.N * subscriptions)
	b.ReportAllocs()
	b.ResetTimer()
	before := processorTime(b)
	publishParallel(b, store, owner, 64)
	c.recorded.Wait()
	b.ReportMetric((processorTime(b)-before)/float64(b.N), "cpu-µs/event")
	b.StopTimer()
	close(c.fresh)
	c.running.Wait()
}

// publishParallel publishes b.N events of about 1 KiB, each in a request of its own.
func publishParallel(b *testing.B, store *storage.Store, p access.Principal, publishers int) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range publishers {
		all.Go(func() {
			for next.Add(1) <= int64(b.N) {
				publishMany(b, store, p, 1, 1)
			}
		})
	}
	all.Wait()
}
