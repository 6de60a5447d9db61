package sender

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Inside the package, because these benchmarks measure an attempt without the store and the scheduler.

// newBenchSender makes a sender, a target and a job of 1 KiB.
func newBenchSender(transport http.RoundTripper, url string) (*Sender, *Target, *webhook.Job) {
	s := New(Options{
		Transport: transport, HeaderPrefix: "X-Service", Timeout: 15 * time.Second, AllowHTTP: true, Logger: slog.New(slog.DiscardHandler),
	})
	t := s.Prepare(webhook.Target{ID: "sub_1", URL: url, Secret: webhook.NewSecret()})
	return s, t, &webhook.Job{EventID: "evt_01kh2m3n4p5q6r7s8t9v0w1x2y", EventType: "order.paid", Body: bytes.Repeat([]byte("x"), 1<<10)}
}

// noop answers at once.
type noop struct{ response http.Response }

func (n *noop) RoundTrip(*http.Request) (*http.Response, error) { return &n.response, nil }

func BenchmarkSend(b *testing.B) {
	s, t, j := newBenchSender(&noop{http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}}, "https://example.com/hook")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	b.ReportAllocs()
	for b.Loop() {
		if err := sendOne(ctx, s, t, j); err != nil {
			b.Fatal(err)
		}
	}
}

// receiverVariable makes a process of this test the receiver of BenchmarkAttempt. In its own process, its processor time
// is not counted.
const receiverVariable = "KEYHOOK_BENCHMARK_RECEIVER"

func init() {
	if os.Getenv(receiverVariable) == "" {
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin) // until the benchmark ends
		os.Exit(0)
	}()
	panic(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	})))
}

// startReceiver starts the receiver's process and returns its address.
func startReceiver(b *testing.B) string {
	b.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), receiverVariable+"=1")
	in, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); c.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(address)
}

// processorTime returns the time that this process has used.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// measure makes b.N attempts and reports the processor time of each. 16 callers, as many as a subscription may have by
// default, each get their own attempt function.
func measure(b *testing.B, newAttempt func() func() error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	var callers sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	begin := processorTime(b)
	for range 16 {
		callers.Go(func() {
			attempt := newAttempt()
			for left.Add(-1) >= 0 {
				if err := attempt(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	b.ReportMetric(float64(processorTime(b)-begin)/float64(b.N), "cpu-ns/op")
}

// BenchmarkAttempt compares an attempt over loopback with net/http alone, and with bare connections. The other two send
// the same bytes.
func BenchmarkAttempt(b *testing.B) {
	address := startReceiver(b)
	transport := egress.NewTransport(egress.Options{
		Policy: egress.Policy{AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, MaxIdlePerHost: 16,
	})
	b.Cleanup(transport.CloseIdleConnections)
	s, t, j := newBenchSender(transport, "http://"+address+"/hook")
	header := s.header(t, j, time.Now())
	newRequest := func() *http.Request {
		request := t.request.WithContext(context.Background())
		request.Header, request.ContentLength, request.Body = header, int64(len(j.Body)), io.NopCloser(bytes.NewReader(j.Body))
		return request
	}
	b.Run("send", func(b *testing.B) {
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		send := func() error { return sendOne(ctx, s, t, j) }
		measure(b, func() func() error { return send })
	})
	b.Run("send in a new goroutine", func(b *testing.B) {
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		measure(b, func() func() error {
			ended := make(chan error, 1)
			return func() error {
				go func() { ended <- sendOne(ctx, s, t, j) }()
				return <-ended
			}
		})
	})
	b.Run("round trip", func(b *testing.B) {
		roundTrip := func() error {
			response, err := transport.RoundTrip(newRequest())
			if err != nil {
				return err
			}
			return response.Body.Close()
		}
		measure(b, func() func() error { return roundTrip })
	})
	b.Run("bare connection", func(b *testing.B) {
		var text bytes.Buffer
		if err := newRequest().Write(&text); err != nil {
			b.Fatal(err)
		}
		measure(b, func() func() error {
			c, err := net.Dial("tcp", address)
			if err != nil {
				return func() error { return err }
			}
			b.Cleanup(func() { c.Close() })
			response := make([]byte, 4<<10)
			return func() error {
				if _, err := c.Write(text.Bytes()); err != nil {
					return err
				}
				_, err := c.Read(response)
				return err
			}
		})
	})
}

func sendOne(ctx context.Context, s *Sender, t *Target, j *webhook.Job) error {
	a := &Attempt{Target: t, Job: *j}
	s.Send(ctx, a)
	if a.Result.Succeeded {
		return nil
	}
	return errors.New(a.Result.Failure.String())
}
