package sender_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/keyhook/keyhook/dispatch/sender"
	"github.com/keyhook/keyhook/storage/webhook"
)

// quiet discards what a server logs about its clients.
func quiet(s *httptest.Server) { s.Config.ErrorLog = log.New(io.Discard, "", 0) }

const head200 = "HTTP/1.1 200 OK\r\n"

// bomb is a megabyte of zeros, compressed.
func bomb(t *testing.T) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// hostileReceiver is a receiver and the attempt that it must lead to.
type hostileReceiver struct {
	serve func(c net.Conn, r *http.Request)
	want  string // error; empty: success
	body  func(string) bool
}

// testHostileReceivers checks that an attempt ends in time, with a short and clean text, whatever the receiver answers.
func testHostileReceivers(t *testing.T, receivers map[string]hostileReceiver) {
	t.Parallel()
	for name, c := range receivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAttempt(secretURL(rawServer(t, c.serve)))
			timeout := 10 * time.Second // which only a busy machine reaches
			if strings.HasPrefix(c.want, "timeout") {
				timeout = 300 * time.Millisecond
			}
			begin := time.Now()
			r := sendOne(t, a, sender.Options{Transport: loopback(t), Timeout: timeout})
			if took := time.Since(begin); took > timeout+1200*time.Millisecond {
				t.Errorf("took %s", took)
			}
			if r.Failure.String() != c.want || r.Succeeded != (c.want == "") {
				t.Errorf("error %q, want %q", r.Failure.String(), c.want)
			}
			if !utf8.ValidString(r.ResponseBody) || utf8.RuneCountInString(r.ResponseBody) > webhook.MaxResponseBody {
				t.Errorf("body of %d bytes, valid: %t", len(r.ResponseBody), utf8.ValidString(r.ResponseBody))
			}
			if c.body != nil && !c.body(r.ResponseBody) {
				t.Errorf("body %.100q", r.ResponseBody)
			}
		})
	}
}

func TestHostileBodies(t *testing.T) {
	packed := bomb(t)
	testHostileReceivers(t, map[string]hostileReceiver{
		"no response": {
			serve: func(net.Conn, *http.Request) { time.Sleep(2 * time.Second) },
			want:  "timeout: no complete response within 300ms",
		},
		"an empty body": {
			serve: func(c net.Conn, _ *http.Request) { io.WriteString(c, head200+"Content-Length: 0\r\n\r\n") },
			body:  func(s string) bool { return s == "" },
		},
		"2001 characters": {
			serve: func(c net.Conn, _ *http.Request) {
				fmt.Fprintf(c, head200+"Content-Length: %d\r\n\r\n%s", 2*2001, strings.Repeat("é", 2001))
			},
			body: func(s string) bool { return s == strings.Repeat("é", 2000) },
		},
		"ten megabytes": {
			serve: func(c net.Conn, _ *http.Request) {
				io.WriteString(c, head200+"Content-Length: 10485760\r\n\r\n")
				io.Copy(c, io.LimitReader(repeated('x'), 10<<20))
			},
			body: func(s string) bool { return s == strings.Repeat("x", 2000) },
		},
		"a body without end": {
			serve: func(c net.Conn, _ *http.Request) {
				io.WriteString(c, head200+"Connection: close\r\n\r\n")
				io.Copy(c, repeated('x'))
			},
			body: func(s string) bool { return s == strings.Repeat("x", 2000) },
		},
		"chunks without end": {
			serve: func(c net.Conn, _ *http.Request) {
				io.WriteString(c, head200+"Transfer-Encoding: chunked\r\n\r\n")
				for {
					if _, err := io.WriteString(c, "1\r\nx\r\n"); err != nil {
						return
					}
				}
			},
			body: func(s string) bool { return s == strings.Repeat("x", 2000) },
		},
		"invalid UTF-8 and control characters": {
			serve: func(c net.Conn, _ *http.Request) {
				io.WriteString(c, head200+"Connection: close\r\n\r\na\xff\x00\x1b[31m\r\n\tb")
			},
			body: func(s string) bool { return s == "a\uFFFD[31m\n\tb" },
		},
		"a gzip bomb": {
			serve: func(c net.Conn, _ *http.Request) {
				fmt.Fprintf(c, head200+"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", len(packed))
				c.Write(packed)
			},
			body: func(s string) bool { return len(s) < 8<<10 },
		},
	})
}

func TestHostileHeaders(t *testing.T) {
	testHostileReceivers(t, map[string]hostileReceiver{
		"a header of 2 MB": {
			serve: func(c net.Conn, _ *http.Request) {
				io.WriteString(c, head200+"X-Large: ")
				io.Copy(c, io.LimitReader(repeated('x'), 2<<20))
				io.WriteString(c, "\r\n\r\n")
			},
			want: "protocol_error: the response is not valid HTTP",
		},
		"headers without end": {
			serve: func(c net.Conn, _ *http.Request) {
				io.WriteString(c, head200)
				for {
					if _, err := io.WriteString(c, "X-More: x\r\n"); err != nil {
						return
					}
				}
			},
			want: "protocol_error: the response is not valid HTTP",
		},
		"1xx responses without end": {
			serve: func(c net.Conn, _ *http.Request) {
				for {
					if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"); err != nil {
						return
					}
				}
			},
			want: "protocol_error: the response is not valid HTTP",
		},
		"another protocol": {
			serve: func(c net.Conn, _ *http.Request) { io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n") },
			want:  "protocol_error: the response is not valid HTTP",
		},
		"a switch of protocols": {
			serve: func(c net.Conn, _ *http.Request) {
				io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
				time.Sleep(time.Second)
			},
			want: "http_status: 101",
		},
	})
}

func TestSlowAndBrokenResponses(t *testing.T) {
	testHostileReceivers(t, map[string]hostileReceiver{
		"a byte at a time": {
			serve: func(c net.Conn, _ *http.Request) {
				io.WriteString(c, head200+"Content-Length: 1000\r\n\r\n")
				for {
					time.Sleep(100 * time.Millisecond)
					if _, err := io.WriteString(c, "x"); err != nil {
						return
					}
				}
			},
			want: "timeout: no complete response within 300ms",
			body: func(s string) bool { return strings.Trim(s, "x") == "" },
		},
		"a header byte at a time": {
			serve: func(c net.Conn, _ *http.Request) {
				for _, b := range []byte(head200 + strings.Repeat("X-More: x\r\n", 10)) {
					time.Sleep(100 * time.Millisecond)
					if _, err := c.Write([]byte{b}); err != nil {
						return
					}
				}
			},
			want: "timeout: no complete response within 300ms",
		},
		"half of the body": {
			serve: func(c net.Conn, _ *http.Request) { io.WriteString(c, head200+"Content-Length: 1000\r\n\r\nhalf") },
			want:  "connect_error: the connection was lost before the response was complete",
			body:  func(s string) bool { return s == "half" },
		},
		"a reset after the headers": {
			serve: func(c net.Conn, _ *http.Request) {
				io.WriteString(c, head200+"Content-Length: 1000\r\n\r\n")
				c.(*net.TCPConn).SetLinger(0)
			},
			want: "connect_error: the connection was lost before the response was complete",
		},
		"a failure with a slow body": {
			serve: func(c net.Conn, _ *http.Request) {
				io.WriteString(c, "HTTP/1.1 503 No\r\nContent-Length: 1000\r\n\r\nbusy")
				time.Sleep(2 * time.Second)
			},
			want: "http_status: 503",
			body: func(s string) bool { return s == "busy" },
		},
	})
}

// repeated is an endless reader of one byte.
type repeated byte

func (z repeated) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(z)
	}
	return len(p), nil
}

// endlessResponse has an endless body and counts the bytes read from it.
type endlessResponse struct{ read atomic.Int64 }

func (e *endlessResponse) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Body: io.NopCloser(e), Header: http.Header{}}, nil
}

func (e *endlessResponse) Read(p []byte) (int, error) {
	e.read.Add(int64(len(p)))
	return repeated('x').Read(p)
}

func TestAnAnswerIsReadUpToItsBound(t *testing.T) {
	t.Parallel()
	var body endlessResponse
	if r := sendOne(t, newAttempt(secretURL("https://a.example")), sender.Options{Transport: &body}); !r.Succeeded {
		t.Error(r.Failure.String())
	}
	if n := body.read.Load(); n != 8<<10 {
		t.Errorf("%d bytes were read", n)
	}
}
