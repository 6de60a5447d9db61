package dispatch_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// newEvent returns an event of about 1 KiB, the size that the project's figures use.
func newEvent() webhook.NewEvent {
	data := make([]byte, 800)
	for i := range data {
		data[i] = 'a'
	}
	return webhook.NewEvent{Type: "order.paid", Data: []byte(`{"text":"` + string(data) + `"}`)}
}

// instantTransport answers at once, without a network.
type instantTransport struct{}

func (instantTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	q.Body.Close()
	if q.URL.Host == "fails.example" {
		return nil, errors.New("no such host")
	}
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Header: http.Header{}}, nil
}

// deliverAll publishes b.N events from 64 goroutines and waits until all results are recorded.
func deliverAll(b *testing.B, transport http.RoundTripper, url string, subscriptions int) {
	deliverBeside(b, 0, transport, url, subscriptions)
}

// deliverBeside is deliverAll while other subscriptions wait for a retry.
func deliverBeside(b *testing.B, others int, transport http.RoundTripper, url string, subscriptions int) {
	o := storagetest.Options(b, b.TempDir()+"/keyhook.db")
	o.Synchronous = storage.Full
	store, _ := storagetest.OpenWith(b, o)
	x := fixtureOn(b, store, nil, dispatch.Options{Transport: transport, AllowHTTP: true, RetryBase: 10 * time.Minute})
	for i := range others {
		storagetest.Subscription(b, store, x.owner, "https://fails.example/"+strconv.Itoa(i), "order.refunded")
	}
	for i := range subscriptions {
		storagetest.Subscription(b, store, x.owner, url+strconv.Itoa(i), "order.paid")
	}
	x.run(b)
	if others > 0 {
		storagetest.Publish(b, store, x.owner, "order.refunded")
		time.Sleep(2 * time.Second)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	var publishers sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range 64 {
		publishers.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := store.Queue.PublishEvents(context.Background(), x.org(), []webhook.NewEvent{newEvent()}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	publishers.Wait()
	for waits := true; waits; {
		time.Sleep(5 * time.Millisecond)
		backlog, err := store.Survey.Backlog(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		waits = backlog.OldestDue != 0 && backlog.OldestDue < time.Now().UnixMilli()
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N*subscriptions)/b.Elapsed().Seconds(), "deliveries/s")
}

func BenchmarkInstant(b *testing.B) {
	for _, n := range []int{1, 10} {
		b.Run("subscriptions="+strconv.Itoa(n), func(b *testing.B) { deliverAll(b, instantTransport{}, "https://a.example/", n) })
	}
}

// Waiting lanes cost nothing: this is as quick as without them.
func BenchmarkBesideWaitingLanes(b *testing.B) {
	deliverBeside(b, 3000, instantTransport{}, "https://a.example/", 1)
}

func BenchmarkLoopback(b *testing.B) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: time.Second}).DialContext,
		MaxIdleConnsPerHost: 64, DisableCompression: true,
	}
	deliverAll(b, transport, receiver.URL+"/", 1)
}

// BenchmarkBacklog reads events from the table that were published before the dispatcher ran.
func BenchmarkBacklog(b *testing.B) {
	o := storagetest.Options(b, b.TempDir()+"/keyhook.db")
	o.Synchronous = storage.Full
	store, _ := storagetest.OpenWith(b, o)
	x := fixtureOn(b, store, nil, dispatch.Options{Transport: instantTransport{}})
	storagetest.Subscription(b, store, x.owner, "https://a.example/", "order.paid")
	for left := b.N; left > 0; left -= 1000 {
		events := make([]webhook.NewEvent, min(left, 1000))
		for i := range events {
			events[i] = newEvent()
		}
		if _, err := store.Queue.PublishEvents(context.Background(), x.org(), events); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	x.run(b)
	x.untilIdle(b)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
}

// BenchmarkOrdered sends a backlog and then single events to an ordered subscription. "not" is the same without the order.
func BenchmarkOrdered(b *testing.B) {
	for name, ordered := range map[string]bool{"ordered": true, "not": false} {
		b.Run(name+"/backlog", func(b *testing.B) { deliverInOrder(b, ordered, 1000) })
		b.Run(name+"/live", func(b *testing.B) { deliverInOrder(b, ordered, 1) })
	}
}

// deliverInOrder publishes some events at once, and waits for their delivery each time.
func deliverInOrder(b *testing.B, ordered bool, some int) {
	o := storagetest.Options(b, b.TempDir()+"/keyhook.db")
	o.Synchronous = storage.Full
	store, _ := storagetest.OpenWith(b, o)
	var left sync.WaitGroup
	transport := roundTripper(func(q *http.Request) (*http.Response, error) {
		defer left.Done()
		return instantTransport{}.RoundTrip(q)
	})
	x := fixtureOn(b, store, nil, dispatch.Options{Transport: transport})
	sub, _ := storagetest.Subscription(b, store, x.owner, "https://a.example/", "order.paid")
	x.setOrdered(b, sub, ordered)
	x.run(b)
	b.ReportAllocs()
	b.ResetTimer()
	for n := b.N; n > 0; n -= some {
		events := make([]webhook.NewEvent, min(n, some))
		for i := range events {
			events[i] = newEvent()
		}
		left.Add(len(events))
		if _, err := store.Queue.PublishEvents(context.Background(), x.org(), events); err != nil {
			b.Fatal(err)
		}
		left.Wait()
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
}

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }
