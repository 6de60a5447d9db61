package dispatch_test

import (
	"context"
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

// event of about 1 KiB, as the figures of the project have it.
func event() webhook.NewEvent {
	data := make([]byte, 800)
	for i := range data {
		data[i] = 'a'
	}
	return webhook.NewEvent{Type: "order.paid", Data: []byte(`{"text":"` + string(data) + `"}`)}
}

// instant answers at once, without a network.
type instant struct{ delivered atomic.Int64 }

func (i *instant) RoundTrip(q *http.Request) (*http.Response, error) {
	q.Body.Close()
	i.delivered.Add(1)
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Header: http.Header{}}, nil
}

// deliverAll publishes b.N events by 64 publishers and waits until all are recorded.
func deliverAll(b *testing.B, transport http.RoundTripper, url string, subscriptions int) {
	o := storagetest.Options(b, b.TempDir()+"/keyhook.db")
	o.Synchronous = storage.Full
	store, _ := storagetest.OpenWith(b, o)
	x := rigOn(b, store, nil, dispatch.Options{Transport: transport, AllowHTTP: true})
	for i := range subscriptions {
		storagetest.Subscription(b, store, x.owner, url+strconv.Itoa(i), "order.paid")
	}
	x.run(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	var publishers sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range 64 {
		publishers.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := store.PublishEvents(context.Background(), x.org(), []webhook.NewEvent{event()}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	publishers.Wait()
	for waits := true; waits; {
		time.Sleep(5 * time.Millisecond)
		var err error
		if _, waits, err = store.OldestDue(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N*subscriptions)/b.Elapsed().Seconds(), "deliveries/s")
}

func BenchmarkInstant(b *testing.B) {
	for _, n := range []int{1, 10} {
		b.Run("subscriptions="+strconv.Itoa(n), func(b *testing.B) { deliverAll(b, &instant{}, "https://a.example/", n) })
	}
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
