package sender_test

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/webhook"
)

// keepingReceiver keeps connections open. It calls serve with each connection that has a request, and the number of earlier
// requests on it. It ends the connection when serve returns false.
type keepingReceiver struct {
	url         string
	connections atomic.Int64
}

func keepOpen(t *testing.T, serve func(c *net.TCPConn, in *bufio.Reader, earlier int) bool) *keepingReceiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	receiver := &keepingReceiver{url: "http://" + l.Addr().String() + "/"}
	var running sync.WaitGroup
	running.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			receiver.connections.Add(1)
			running.Go(func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for earlier := 0; ; earlier++ {
					if _, err := in.Peek(1); err != nil || !serve(c.(*net.TCPConn), in, earlier) {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return receiver
}

// answer reads a request, and answers it. The answer has a body: http.Transport offers a connection to other requests before
// it hands over a response without one, and loses that response if the connection ends in between. Then the attempt fails.
func answer(c net.Conn, in *bufio.Reader) bool {
	r, err := http.ReadRequest(in)
	if err != nil {
		return false
	}
	io.Copy(io.Discard, r.Body)
	_, err = io.WriteString(c, "HTTP/1.1 200 Fine\r\nContent-Length: 4\r\n\r\nfine")
	return err == nil
}

// sendMany sends attempts, some at the same time, over connections that they share.
func sendMany(t *testing.T, url string, size, together, each int, timeout time.Duration) (results []webhook.Result) {
	t.Helper()
	s := sender.New(sender.Options{Transport: loopback(t), HeaderPrefix: "X-Service", Timeout: timeout, AllowHTTP: true, Logger: slog.New(slog.DiscardHandler)})
	a := newAttempt(url)
	a.job.Body = []byte(strings.Repeat("x", size))
	target := s.Prepare(a.target)
	var running sync.WaitGroup
	var mu sync.Mutex
	for range together {
		running.Go(func() {
			for range each {
				sent := sender.Attempt{Target: target, Job: a.job, Row: 1, Epoch: 1}
				s.Send(t.Context(), &sent)
				mu.Lock()
				results = append(results, sent.Result)
				mu.Unlock()
			}
		})
	}
	running.Wait()
	return results
}

func TestLostIdleConnection(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(*net.TCPConn, *bufio.Reader, int) bool{
		"closes each connection when a second request comes": func(c *net.TCPConn, in *bufio.Reader, earlier int) bool {
			return earlier == 0 && answer(c, in)
		},
		"resets each connection when a second request comes": func(c *net.TCPConn, in *bufio.Reader, earlier int) bool {
			c.SetLinger(0)
			return earlier == 0 && answer(c, in)
		},
		"closes each connection 1 ms after its response": func(c *net.TCPConn, in *bufio.Reader, _ int) bool {
			c.SetReadDeadline(time.Time{})
			return answer(c, in) && c.SetReadDeadline(time.Now().Add(time.Millisecond)) == nil
		},
	} {
		for _, size := range []int{100, 64 << 10} {
			t.Run("a receiver that "+name+" costs no attempt with "+strconv.Itoa(size)+" bytes", func(t *testing.T) {
				t.Parallel()
				for _, r := range sendMany(t, keepOpen(t, serve).url, size, 8, 50, 15*time.Second) {
					if !r.Succeeded {
						t.Error(r.Failure)
					}
				}
			})
		}
	}

	// Each is the answer to the second request of each connection. The number of connections shows how often a request was sent.
	for name, c := range map[string]struct {
		first, second func(c net.Conn, in *bufio.Reader) bool
		want          string // of the second attempt; it is the first if there is no answer to that
		connections   int64
	}{
		"a new connection is lost": {
			first:       func(net.Conn, *bufio.Reader) bool { return false },
			want:        "connect_error: the connection was lost before the response was complete",
			connections: 2, // one for each attempt
		},
		"the first byte of a response has come": {
			first:       answer,
			second:      func(c net.Conn, _ *bufio.Reader) bool { io.WriteString(c, "HTTP/1.1 200 Fine\r\n"); return false },
			want:        "connect_error: the connection was lost before the response was complete",
			connections: 1,
		},
		"the timeout is over": {
			first:       answer,
			second:      func(net.Conn, *bufio.Reader) bool { time.Sleep(time.Second); return false },
			want:        "timeout: no complete response within 500ms",
			connections: 1,
		},
	} {
		t.Run("a request is not repeated after "+name, func(t *testing.T) {
			t.Parallel()
			receiver := keepOpen(t, func(conn *net.TCPConn, in *bufio.Reader, earlier int) bool {
				if earlier == 0 {
					return c.first(conn, in)
				}
				return c.second(conn, in)
			})
			results := sendMany(t, receiver.url, 100, 1, 2, 500*time.Millisecond)
			if got := results[1].Failure.String(); got != c.want || receiver.connections.Load() != c.connections {
				t.Errorf("%q, %d connections; want %q, %d", got, receiver.connections.Load(), c.want, c.connections)
			}
		})
	}
}
