package e2e

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch/egress"
)

// BenchmarkRelay shows how much of the cost of a delivery is HTTP, and how much is storage. It publishes b.N events in three ways: to the receiver
// itself ("direct"), to a relay that keeps nothing ("relay"), and to Keyhook. The relay checks no key and does not wait for a disk. Its
// queues are in memory. It signs once, and sends with the transport and the concurrency of Keyhook. Publisher, server and receiver
// are three processes. Use a fixed number of events, and compare within one run:
//
//	go test ./server/e2e -run '^$' -bench Relay -benchtime 20000x
func BenchmarkRelay(b *testing.B) {
	for _, load := range []struct {
		name                         string
		subscriptions, size, callers int
	}{
		{"one", 1, 1, 64},
		{"fanout=10", 10, 1, 64},
		{"batch=20", 1, 20, 16},
	} {
		b.Run(load.name, func(b *testing.B) {
			b.Run("direct", func(b *testing.B) {
				receiver := startRole(b, roleReceiver)
				rate(b, receiver, publication{address: receiver, path: "/", size: 1, callers: 64}, 1)
			})
			b.Run("relay", func(b *testing.B) {
				receiver := startRole(b, roleReceiver)
				relay := startRole(b, roleRelay, receiver, strconv.Itoa(load.subscriptions))
				rate(b, receiver, publication{address: relay, path: eventPath(load.size), size: load.size, callers: load.callers}, load.subscriptions)
			})
			b.Run("keyhook", func(b *testing.B) {
				receiver := startRole(b, roleReceiver)
				p := startQuiet(b)
				for range load.subscriptions {
					p.subscribe(b, "http://"+receiver+"/", "a")
				}
				var created struct{ Key string }
				p.must(b, "POST", "/api/v1/api-keys/", object{"name": "bench", "scope": "events:write"}, &created)
				rate(b, receiver, publication{
					address: strings.TrimPrefix(p.url, "http://"), path: eventPath(load.size), key: created.Key, size: load.size, callers: load.callers,
				}, load.subscriptions)
			})
		})
	}
}

// startQuiet starts serve without a line of log for each request.
func startQuiet(b *testing.B) *process {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	l.Close() // the log does not tell the port at this level
	p, _ := launch(b, program(), b.TempDir(), "KEYHOOK_LOG_LEVEL=warn", "KEYHOOK_SERVER_LISTEN="+l.Addr().String())
	p.url = "http://" + l.Addr().String()
	p.caller = newCaller(p.url, "Bearer "+operatorToken)
	for range 1000 {
		if _, err := p.call(b.Context(), "GET", "/healthz", nil); err == nil {
			return p
		}
		<-time.After(10 * time.Millisecond)
	}
	b.Fatalf("serve does not answer:\n%s", p.said())
	return nil
}

// rate publishes b.N events and reports how many deliveries a second arrive.
func rate(b *testing.B, receiver string, p publication, deliveries int) {
	b.Helper()
	b.ResetTimer()
	p.publish(b, b.N)
	for n := arrived(b, receiver); n < b.N*deliveries; n = arrived(b, receiver) {
		if b.Elapsed() > 5*time.Minute {
			b.Fatalf("only %d of %d deliveries have arrived", n, b.N*deliveries)
		}
		<-time.After(5 * time.Millisecond)
	}
	b.ReportMetric(float64(b.N*deliveries)/b.Elapsed().Seconds(), "deliveries/s")
	b.ReportMetric(0, "ns/op")
}

// eventPath is where events are published, one or many at a time.
func eventPath(size int) string {
	if size > 1 {
		return "/api/v1/events/batch/"
	}
	return "/api/v1/events/"
}

// publication says how events are published.
type publication struct {
	address, path, key string
	size               int // events in a request
	callers            int // connections, with one request at a time
}

// publish publishes n events. It writes bytes, because the client of net/http would take more time than some servers.
func (p publication) publish(b *testing.B, n int) {
	b.Helper()
	one := `{"type":"a","data":{"text":"` + strings.Repeat("x", 960) + `"}}`
	body := one
	if p.size > 1 {
		body = `{"events":[` + strings.Repeat(one+",", p.size-1) + one + `]}`
	}
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: ApiKey %s\r\nContent-Length: %d\r\n\r\n%s",
		p.path, p.key, len(body), body)
	var left atomic.Int64
	left.Store(int64((n + p.size - 1) / p.size))
	var all sync.WaitGroup
	for range p.callers {
		all.Go(func() {
			conn, err := net.Dial("tcp", p.address)
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			responses := bufio.NewReader(conn)
			for left.Add(-1) >= 0 {
				if err := exchange(conn, responses, request); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// exchange sends a request and reads the response.
func exchange(conn net.Conn, responses *bufio.Reader, request []byte) error {
	if _, err := conn.Write(request); err != nil {
		return err
	}
	status, err := responses.ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(status, "HTTP/1.1 2") {
		return fmt.Errorf("the response is %q", status)
	}
	length := 0
	for {
		line, err := responses.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == len("\r\n") {
			_, err := responses.Discard(length)
			return err
		}
		if name, value, _ := bytes.Cut(line, []byte(": ")); string(name) == "Content-Length" {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}
}

// arrived asks a receiver how many requests it has answered.
func arrived(b *testing.B, receiver string) (n int) {
	b.Helper()
	resp, err := http.Get("http://" + receiver + "/count")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := fmt.Fscan(resp.Body, &n); err != nil {
		b.Fatal(err)
	}
	return n
}

// A process of this test plays a part of BenchmarkRelay if this variable names it. The other words are its arguments.
const roleVariable = "KEYHOOK_TEST_ROLE"

const (
	roleReceiver = "receiver"
	roleRelay    = "relay" // with the address of the receiver, and the number of subscriptions
)

func init() {
	role := strings.Fields(os.Getenv(roleVariable))
	if len(role) == 0 {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the benchmark ends
		os.Exit(0)
	}()
	var handler http.Handler = countingReceiver()
	if role[0] == roleRelay {
		handler = relay(role[1], role[2])
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	panic(http.Serve(l, handler))
}

// startRole starts a process that plays a role, and returns its address.
func startRole(b *testing.B, role ...string) string {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+strings.Join(role, " "))
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(address)
}

// countingReceiver answers 200 to everything, and tells at /count how often.
func countingReceiver() http.Handler {
	var answered atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /count", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answered.Load()) })
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answered.Add(1)
	})
	return mux
}

// relay forwards each event to every subscription, which all lead to one receiver. It answers before it sends.
func relay(receiver, subscriptions string) http.Handler {
	n, err := strconv.Atoi(subscriptions)
	if err != nil {
		panic(err)
	}
	const concurrency = 16 // default of webhooks.concurrency_per_subscription
	policy := egress.Policy{AllowHTTP: true, AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	transport := egress.NewTransport(egress.Options{Policy: policy, MaxIdle: 256, MaxIdlePerHost: 256})
	target := &url.URL{Scheme: "http", Host: receiver, Path: "/"}
	queues := make([]chan []byte, n)
	for i := range queues {
		queues[i] = make(chan []byte, 1<<20)
		for range concurrency {
			go func() {
				for body := range queues[i] {
					forward(transport, target, body)
				}
			}()
		}
	}
	type event struct {
		Type string          `json:"type"`
		Data json.RawMessage `json:"data"`
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var published struct {
			event
			Events []event `json:"events"`
		}
		if err := json.NewDecoder(r.Body).Decode(&published); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, e := range append(published.Events, published.event) {
			for _, queue := range queues {
				if e.Data != nil {
					queue <- e.Data
				}
			}
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"data":{"id":"evt_01kh2m3n4p5q6r7s8t9v0w1x2y"}}`)
	})
}

// forward signs and sends a request.
func forward(transport http.RoundTripper, to *url.URL, body []byte) {
	const id = "evt_01kh2m3n4p5q6r7s8t9v0w1x2y"
	now := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte("0123456789abcdef0123456789abcdef"))
	_, _ = io.WriteString(mac, id+"."+now+".")
	_, _ = mac.Write(body)
	resp, err := transport.RoundTrip(&http.Request{
		Method: http.MethodPost, URL: to, Host: to.Host, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
		Header: http.Header{
			"Content-Type": {"application/json"}, "Webhook-Id": {id}, "Webhook-Timestamp": {now},
			"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))},
		},
	})
	if err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}
