package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// largestBody is the largest body of a batch, in bytes. Under the race detector, which makes its refusal ten times as slow,
// a quarter of it shows the same races.
var largestBody = map[bool]int{false: 16 << 20, true: 4 << 20}[underRace]

// mostMemory is how much memory the process may hold under the attacks here, in bytes.
const mostMemory = 120 << 20

// unknownFields returns an object of unknown fields, of at most that many bytes.
func unknownFields(size int) []byte {
	var body bytes.Buffer
	body.WriteByte('{')
	for i := 0; body.Len() < size-20; i++ {
		fmt.Fprintf(&body, `"%x":0,`, i)
	}
	body.WriteString(`"z":0}`)
	return body.Bytes()
}

// hostileBodies are bodies of the largest size that cost the most to refuse.
func hostileBodies() map[string][]byte {
	inOneEvent := append(append([]byte(`{"events":[`), unknownFields(largestBody-20)...), `]}`...)
	return map[string][]byte{
		"unknown fields":             unknownFields(largestBody),
		"unknown fields in an event": inOneEvent,
		"empty events":               []byte(`{"events":[` + strings.Repeat("{},", largestBody/3-10) + `{}]}`),
		"numbers for events":         []byte(`{"events":[` + strings.Repeat("0,", largestBody/2-10) + `0]}`),
		"wrong events, 1,000":        []byte(`{"events":[` + strings.Repeat(string(unknownFields(16_000))+",", 999) + `{}]}`),
		"one long name":              []byte(`{"` + strings.Repeat("x", largestBody-20) + `":0}`),
		"escapes":                    []byte(`{"` + strings.Repeat(`\u0061`, largestBody/6-10) + `":0}`),
	}
}

// halfSend sends a valid batch without its last byte, and keeps the connection open until ctx ends. It returns what
// the server answered meanwhile; nil if nothing.
func halfSend(ctx context.Context, t *organization, body []byte) *http.Response {
	dialer := net.Dialer{}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(t.base, "http://"))
	if err != nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	header := "POST /api/v1/events/batch/ HTTP/1.1\r\nHost: keyhook\r\nContent-Type: application/json\r\nAuthorization: " +
		t.authorization + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	go func() { // ends with the connection
		if _, err := io.WriteString(conn, header); err == nil {
			_, _ = conn.Write(body[:len(body)-1])
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil
	}
	resp.Body.Close()
	return resp
}

// largeBatch is a valid batch of the largest size. No subscription wants its events.
func largeBatch() []byte {
	one := `{"type":"large","data":{"text":"` + strings.Repeat("x", 200<<10) + `"}}`
	return []byte(`{"events":[` + strings.Repeat(one+",", largestBody/len(one)-1) + one + `]}`)
}

// BenchmarkAttackBodies: one customer sends bodies that cost as much memory as possible.
func BenchmarkAttackBodies(b *testing.B) {
	for name, body := range hostileBodies() {
		b.Run(name, func(b *testing.B) {
			p := start(b, b.TempDir())
			v, attacker := p.victim(b), p.organization(b, "attacker")
			var seen outcomes
			attack{during: 5 * time.Second, act: func(ctx context.Context) {
				repeat(ctx, 4, func(ctx context.Context) {
					if a, err := attacker.call(ctx, "POST", "/api/v1/events/batch/", body); err == nil {
						seen.add(fmt.Sprintf("%d %s", a.status, a.code()))
					}
				})
			}}.measure(b, p, v)
			b.Logf("answers: %v", seen.count)
		})
	}
	b.Run("half sent, 40", func(b *testing.B) {
		p := start(b, b.TempDir())
		v, attacker, body := p.victim(b), p.organization(b, "attacker"), largeBatch()
		attack{lead: time.Second, during: 10 * time.Second, act: func(ctx context.Context) {
			repeat(ctx, 40, func(ctx context.Context) { halfSend(ctx, attacker, body) })
		}}.measure(b, p, v)
	})
}

// BenchmarkAttackDisk: a customer on the plan free, which has neither keys nor webhooks, publishes the largest batches.
func BenchmarkAttackDisk(b *testing.B) {
	p := start(b, b.TempDir())
	v, attacker, body := p.victim(b), p.account(b, "attacker", "free"), largeBatch()
	var theirs times
	a := attack{during: 10 * time.Second, act: func(ctx context.Context) {
		begin, before := time.Now(), p.size(b, "")
		repeat(ctx, 4, func(ctx context.Context) { theirs.call(ctx, attacker.caller, "POST", "/api/v1/events/batch/", body) })
		b.ReportMetric(float64(p.size(b, "")-before)/1e6/time.Since(begin).Seconds(), "db-MB/s")
	}}
	a.measure(b, p, v)
	theirs.report(b, "attack")
}

// boundedMemory checks that a process lives and has never held more memory than allowed.
func boundedMemory(t *testing.T, p *process) {
	t.Helper()
	peak := p.peakMemory()
	t.Logf("peak of memory: %d MB", peak>>20)
	if !p.alive() || peak > mostMemory && !underRace { // the race detector needs several times as much
		t.Errorf("it took %d MB of memory; it lives: %t", peak>>20, p.alive())
	}
}

// The body that costs the most is refused with a code, in bounded memory. Before, one of them took 300 MB, and the
// container's limit killed the process.
func TestAttackBodies(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	attacker := p.organization(t, "attacker")
	for name, body := range hostileBodies() {
		a, err := attacker.call(t.Context(), "POST", "/api/v1/events/batch/", body)
		if err != nil {
			t.Fatalf("%s: %v; the process lives: %t", name, err, p.alive())
		}
		if a.status != http.StatusUnprocessableEntity && a.status != http.StatusBadRequest && a.status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d %s", name, a.status, a.code())
		}
		if len(a.body) > 64<<10 {
			t.Errorf("%s: the answer has %d bytes", name, len(a.body))
		}
	}
	boundedMemory(t, p)
}

// Forty bodies of 16 MiB, none of them whole: most are refused, what is kept is bounded, and another customer publishes as
// before. Before, they took 666 MB.
func TestAttackHalfSentBodies(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	v, attacker, body := p.victim(t), p.organization(t, "attacker"), largeBatch()
	ctx, cancel := context.WithCancel(t.Context())
	refused := make(chan *http.Response, 40)
	for range cap(refused) {
		go func() { refused <- halfSend(ctx, attacker, body) }() // ends with ctx
	}
	if f := v.publishFor(t.Context(), 3*time.Second, 10*time.Second); f.failed() > 0 || f.missing > 0 {
		t.Errorf("the victim noticed: %s", f)
	}
	boundedMemory(t, p)
	cancel()
	for range cap(refused) {
		if resp := <-refused; resp != nil && (resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "") {
			t.Errorf("refused with %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
		}
	}
}
