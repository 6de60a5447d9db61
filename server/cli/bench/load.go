package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// load sends one request n times over several connections. It writes the bytes of the request itself: the client of net/http
// would take much of the processors that it shares with the server.
type load struct {
	server  string // its URL
	request []byte
	status  int // expected
	n       int
	rate    int // requests a second; 0 means that a connection sends the next request after each response
}

func (l load) run(ctx context.Context, connections int) error {
	began := time.Now()
	var next atomic.Int64
	all, ctx := errgroup.WithContext(ctx)
	for range min(connections, l.n) {
		all.Go(func() error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(l.server, "http://"))
			if err != nil {
				return err
			}
			defer conn.Close()
			context.AfterFunc(ctx, func() { conn.Close() })
			responses := bufio.NewReader(conn)
			for i := next.Add(1) - 1; i < int64(l.n); i = next.Add(1) - 1 {
				if l.rate > 0 {
					select {
					case <-time.After(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(l.rate)))):
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				if err := l.send(conn, responses); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// send sends the request over a connection, and reads its response.
func (l load) send(conn net.Conn, responses *bufio.Reader) error {
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second)) // it fails for a closed connection, and so does Write
	if _, err := conn.Write(withTime(l.request, time.Now())); err != nil {
		return err
	}
	resp, err := http.ReadResponse(responses, nil)
	if err != nil {
		return fmt.Errorf("read a response: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != l.status {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 2000)) // what there is explains it
		return fmt.Errorf("the status is %d instead of %d: %s", resp.StatusCode, l.status, bytes.TrimSpace(text))
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// timeMark stands in an event for the time at which it is sent, in Unix nanoseconds. They have 19 digits until the year 2286.
const timeMark = `"at":1000000000000000000`

// withTime returns a request with a time in each of its events.
func withTime(request []byte, at time.Time) []byte {
	return bytes.ReplaceAll(request, []byte(timeMark), fmt.Appendf(nil, `"at":%d`, at.UnixNano()))
}

// event returns an event to publish. It has size bytes, or more if its type is long.
func event(eventType string, size int) string {
	begin := `{"type":"` + eventType + `","data":{` + timeMark + `,"text":"`
	const end = `"}}`
	return begin + strings.Repeat("x", max(0, size-len(begin)-len(end))) + end
}

// publishRequest returns a request that publishes batch events.
func (b *bench) publishRequest(eventType string, batch int) []byte {
	one := event(eventType, b.Body)
	if batch == 1 {
		return b.request("POST", "/api/v1/events/", one)
	}
	list := strings.TrimSuffix(strings.Repeat(one+",", batch), ",")
	return b.request("POST", "/api/v1/events/batch/", `{"events":[`+list+`]}`)
}

// request returns the bytes of a request with the API key. body may be empty.
func (b *bench) request(method, path, body string) []byte {
	text := method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey " + b.key + "\r\n"
	if body != "" {
		text += "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	return []byte(text + "\r\n" + body)
}

// receiver takes deliveries at a path for each section, and measures how long they took since they were published.
type receiver struct {
	mu        sync.Mutex
	latencies map[string][]time.Duration // by section, one for each delivery
}

// ServeHTTP takes a delivery. A delivery that was cut off is not counted, and latency will miss it.
func (r *receiver) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	_, rest, _ := bytes.Cut(body, []byte(`"at":`))
	digits, _, _ := bytes.Cut(rest, []byte(","))
	at, _ := strconv.ParseInt(string(digits), 10, 64) // the load wrote it; the latency of a GET, which has none, is not used
	section := strings.TrimPrefix(req.URL.Path, "/")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latencies[section] = append(r.latencies[section], time.Since(time.Unix(0, at)))
}

// latency returns the median and the 99th percentile of a section in milliseconds; 0 without a delivery. It returns an error
// unless n deliveries came in.
func (r *receiver) latency(section string, n int) (p50, p99 float64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sorted := slices.Sorted(slices.Values(r.latencies[section]))
	if len(sorted) != n {
		return 0, 0, fmt.Errorf("the receiver got %d deliveries instead of %d", len(sorted), n)
	}
	if n == 0 {
		return 0, 0, nil
	}
	at := func(percent int) float64 { return sorted[(n*percent+99)/100-1].Seconds() * 1000 }
	return at(50), at(99), nil
}
