package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// withTLS has the server speak TLS.
func withTLS(t *testing.T) func(*server.Options) {
	t.Helper()
	lender := httptest.NewUnstartedServer(http.NotFoundHandler())
	lender.StartTLS()
	lender.Close()
	return func(o *server.Options) { o.TLS = &tls.Config{Certificates: lender.TLS.Certificates} }
}

// streams is a connection of HTTP/2 whose requests wait: the client lets no response send a byte of its body.
type streams struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	last   uint32

	mu       sync.Mutex
	settings map[http2.SettingID]uint32
	status   map[uint32]string // of a response whose header has arrived, by stream
	reset    map[uint32]bool
	ended    map[uint32]bool
}

// streams opens a connection from an address.
func (s *served) streams(t *testing.T, from string) *streams {
	t.Helper()
	conn := tls.Client(s.pipes.connect(from), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http2.NextProtoTLS}})
	c := &streams{
		t: t, conn: conn, framer: http2.NewFramer(conn, conn), last: ^uint32(0),
		settings: map[http2.SettingID]uint32{}, status: map[uint32]string{}, reset: map[uint32]bool{}, ended: map[uint32]bool{},
	}
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	go c.read() // ends with the connection
	if err := c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return c
}

func (c *streams) read() {
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return
		}
		c.mu.Lock()
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			_ = frame.ForeachSetting(func(s http2.Setting) error { c.settings[s.ID] = s.Val; return nil })
		case *http2.MetaHeadersFrame:
			c.status[frame.StreamID] = frame.PseudoValue("status")
			c.ended[frame.StreamID] = frame.StreamEnded()
		case *http2.DataFrame:
			c.ended[frame.StreamID] = c.ended[frame.StreamID] || frame.StreamEnded()
		case *http2.RSTStreamFrame:
			c.reset[frame.StreamID] = true
		}
		c.mu.Unlock()
	}
}

// open begins requests, with header fields as name, value, name, value. If one of them is content-length, no body follows.
func (c *streams) open(n int, line string, header ...string) {
	c.t.Helper()
	method, path, _ := strings.Cut(line, " ")
	fields := append([]string{":method", method, ":scheme", "https", ":authority", "keyhook", ":path", path}, header...)
	for range n {
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		hasBody := false
		for i := 0; i < len(fields); i += 2 {
			_ = encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true})
			hasBody = hasBody || fields[i] == "content-length"
		}
		c.last += 2
		if err := c.framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: c.last, BlockFragment: block.Bytes(), EndStream: !hasBody, EndHeaders: true,
		}); err != nil {
			c.t.Error(err)
		}
		synctest.Wait()
	}
}

// responded returns how many responses have this status so far.
func (c *streams) responded(status string) (n int) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.status {
		if s == status {
			n++
		}
	}
	return n
}

// wasReset returns how many requests got no response, and how many responses are whole.
func (c *streams) wasReset() (reset, ended int) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, is := range c.ended {
		if is {
			ended++
		}
	}
	return len(c.reset), ended
}

// inStreams runs a test of a server with HTTP/2 in virtual time.
func inStreams(t *testing.T, test func(t *testing.T, s *served), change ...func(*server.Options)) {
	t.Helper()
	t.Parallel()
	withTLS := withTLS(t)
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, append(change, withTLS)...)
		test(t, s)
		s.stop()
		<-s.done
		synctest.Wait() // for handlers that wait for their client: the end of the connection ends them
		if organizations, anonymous := s.Server.Reserved(); organizations != 0 || anonymous != 0 {
			t.Errorf("%d and %d bytes are still reserved", organizations, anonymous)
		}
	})
}

// requestMemory is what one request over HTTP/2 reserves, and perAddress how many of them one address may have without a credential.
const (
	requestMemory = 32 << 10
	perAddress    = 60
)

func TestStreams(t *testing.T) {
	t.Parallel()

	t.Run("are limited for each connection, and so are frames", func(t *testing.T) {
		inStreams(t, func(t *testing.T, s *served) {
			c := s.streams(t, "203.0.113.9")
			defer c.conn.Close()
			if n := c.settings[http2.SettingMaxConcurrentStreams]; n != 16 {
				t.Errorf("%d streams", n)
			}
			if n := c.settings[http2.SettingMaxFrameSize]; n != 16<<10 && n != 0 {
				t.Errorf("frames of %d bytes", n)
			}
		})
	})

	t.Run("without a valid credential are limited for each address, and others are not", func(t *testing.T) {
		inStreams(t, func(t *testing.T, s *served) {
			const stranger = "203.0.113.9"
			for i := range perAddress / 12 {
				c := s.streams(t, stranger)
				defer c.conn.Close()
				c.open(6, "GET /healthz/")
				c.open(3, "GET /api/v1/whoami/")
				c.open(3, "GET /nothing")
				if ok, missing, unknown := c.responded("200"), c.responded("401"), c.responded("404"); ok != 6 || missing != 3 || unknown != 3 {
					t.Errorf("connection %d: %d, %d, %d responses", i, ok, missing, unknown)
				}
			}
			if _, anonymous := s.Server.Reserved(); anonymous != perAddress*requestMemory {
				t.Errorf("%d bytes are reserved", anonymous)
			}
			c := s.streams(t, stranger)
			defer c.conn.Close()
			c.open(1, "GET /healthz/")
			c.open(1, "GET /api/v1/whoami/")
			c.open(1, "GET /nothing")
			c.open(1, "GET /api/v1/whoami/", "authorization", "ApiKey svc_x")
			c.open(1, "POST /api/v1/session/", "content-type", "application/json", "content-length", "99")
			if reset, _ := c.wasReset(); reset != 5 {
				t.Errorf("%d of 5 more requests were reset", reset)
			}
			c.open(1, "GET /api/v1/whoami/", "authorization", servertest.Operator)
			if c.responded("200") != 1 {
				t.Error("a valid credential from the same address got no response")
			}
			other := s.streams(t, "203.0.113.10")
			defer other.conn.Close()
			other.open(1, "GET /healthz/")
			if other.responded("200") != 1 {
				t.Error("another address got no response")
			}
		})
	})

	t.Run("have memory until the client has taken the response", func(t *testing.T) {
		inStreams(t, func(t *testing.T, s *served) {
			c := s.streams(t, "203.0.113.9")
			defer c.conn.Close()
			c.open(1, "GET /healthz/")
			c.open(1, "GET /api/v1/whoami/", "authorization", servertest.Operator)
			if organizations, anonymous := s.Server.Reserved(); organizations != requestMemory || anonymous != requestMemory {
				t.Errorf("%d and %d bytes are reserved", organizations, anonymous)
			}
			for _, stream := range []uint32{1, 3} {
				if err := c.framer.WriteWindowUpdate(stream, 64<<10); err != nil {
					t.Fatal(err)
				}
			}
			if _, ended := c.wasReset(); ended != 2 {
				t.Errorf("%d responses are whole", ended)
			}
			if organizations, anonymous := s.Server.Reserved(); organizations != 0 || anonymous != 0 {
				t.Errorf("%d and %d bytes are reserved afterwards", organizations, anonymous)
			}
		})
	})

	t.Run("with half a body get their response after five seconds", func(t *testing.T) {
		inStreams(t, func(t *testing.T, s *served) {
			c := s.streams(t, "203.0.113.9")
			defer c.conn.Close()
			c.open(1, "POST /api/v1/session/", "content-type", "application/json", "content-length", "99")
			time.Sleep(5*time.Second - time.Nanosecond)
			if c.responded("400") != 0 {
				t.Error("a response before the timeout")
			}
			time.Sleep(time.Nanosecond)
			if c.responded("400") != 1 {
				t.Error("no response")
			}
		})
	})

	t.Run("cost twice with fields after the body", func(t *testing.T) {
		inStreams(t, func(t *testing.T, s *served) {
			c := s.streams(t, "203.0.113.9")
			defer c.conn.Close()
			c.open(1, "GET /healthz/", "trailer", "X-Late", "content-length", "9")
			if _, anonymous := s.Server.Reserved(); anonymous != 2*requestMemory {
				t.Errorf("%d bytes are reserved", anonymous)
			}
		})
	})
}

// provider is an identity provider that counts how often it is asked.
type provider struct {
	login
	asked atomic.Int64
}

func (p *provider) Verify(context.Context, access.Credential) (access.Identity, error) {
	p.asked.Add(1)
	return access.Identity{}, fault.New(fault.Unauthenticated, "invalid_key", "No.")
}

func (p *provider) Finish(context.Context, string, url.Values) (who access.Identity, to string, err error) {
	p.asked.Add(1)
	return who, "", fault.New(fault.Unauthenticated, "sign_in_failed", "No.")
}

// A request may have to wait for the identity provider. So it is not asked for a client without memory.
func TestStreamsDoNotWaitForTheProvider(t *testing.T) {
	p := new(provider)
	inStreams(t, func(t *testing.T, s *served) {
		const signIn = "GET /console/oidc/callback/?code=x&state=x"
		ask := func() {
			c := s.streams(t, "203.0.113.9")
			defer c.conn.Close()
			c.open(1, signIn)
			c.open(1, "GET /api/v1/whoami/", "authorization", foreign("root"))
		}
		if ask(); p.asked.Load() != 2 {
			t.Errorf("it was asked %d times, want 2", p.asked.Load())
		}
		synctest.Wait()
		for range perAddress / 12 {
			c := s.streams(t, "203.0.113.9")
			defer c.conn.Close()
			c.open(12, "GET /healthz/")
		}
		if ask(); p.asked.Load() != 2 {
			t.Errorf("without memory, it was asked %d times more", p.asked.Load()-2)
		}
	}, withIssuer(p), func(o *server.Options) { o.SignIn, o.Console = p, &console.Options{} })
}

// Nothing ends the connection but the timeout: the client does not read, so not even a reset of its streams can be sent.
func TestStuckConnection(t *testing.T) {
	inStreams(t, func(t *testing.T, s *served) {
		near := s.pipes.connect("203.0.113.9")
		defer near.Close()
		conn := tls.Client(near, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http2.NextProtoTLS}})
		framer := http2.NewFramer(conn, conn)
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		if err := framer.WriteSettings(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(40 * time.Second)
		if _, err := conn.Write([]byte{0}); err == nil {
			t.Error("a connection that reads nothing is still open after 40 s")
		}
	})
}

// A response that waits for its reader keeps nothing of its request.
func TestStreamForgetsItsRequest(t *testing.T) {
	var kept *http.Request
	inStreams(t, func(t *testing.T, s *served) {
		c := s.streams(t, "203.0.113.9")
		defer c.conn.Close()
		c.open(1, "GET /metrics/?", "authorization", servertest.Operator, "x-large", strings.Repeat("x", 10_000))
		if c.responded("200") != 1 {
			t.Error("no response")
		}
		if kept == nil || kept.Header != nil || kept.URL != nil || kept.RequestURI != "" || kept.Host != "" {
			t.Errorf("kept: %+v", kept)
		}
	}, func(o *server.Options) {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			kept = r
			_, _ = io.WriteString(w, "metrics")
		})
	})
}
