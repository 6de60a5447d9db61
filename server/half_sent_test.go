package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server/servertest"
)

// halfSent sends a request and half of its body.
func (s *served) halfSent(from, line, as string) net.Conn {
	conn := s.pipes.connect(from)
	fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{", line, as)
	return conn
}

func TestHalfSentBodies(t *testing.T) {
	t.Parallel()
	const publish = "POST /api/v1/events/"

	t.Run("without a valid credential get five seconds", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := serve(t)
			for name, tt := range map[string]struct {
				line, as string
				status   int
				after    time.Duration
			}{
				"signing in":             {"POST " + sessionPath, "", 400, 5 * time.Second},
				"a wrong credential":     {publish, "ApiKey svc_x", 401, 5 * time.Second},
				"no credential":          {publish, "", 401, 5 * time.Second},
				"with a good credential": {publish, servertest.Operator, 400, 15 * time.Second},
			} {
				began := time.Now()
				conn := s.halfSent("203.0.113.9", tt.line, tt.as)
				response, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				} else if took := time.Since(began); response.StatusCode != tt.status || took != tt.after {
					t.Errorf("%s: status %d after %s, want %d after %s", name, response.StatusCode, took, tt.status, tt.after)
				} else if text, err := io.ReadAll(response.Body); err != nil || strings.Contains(string(text), "took too long") != (tt.status == 400) {
					t.Errorf("%s: %s, error %v", name, text, err)
				}
				conn.Close()
			}
			s.stop()
			<-s.done
		})
	})

	t.Run("without a valid credential keep nobody out", func(t *testing.T) {
		t.Parallel()
		for _, as := range []string{"", "ApiKey svc_x", servertest.Operator} {
			synctest.Test(t, func(t *testing.T) {
				s := limited(t)
				var conns []net.Conn
				for i := range most {
					conns = append(conns, s.halfSent(fmt.Sprintf("203.0.113.%d", i), publish, as))
				}
				synctest.Wait()
				began, got := time.Now(), false
				next := s.pipes.connect("198.51.100.1")
				got = responds(next, "/api/v1/whoami/")
				if waited := time.Since(began); !got || (waited == 0) != (as != servertest.Operator) {
					t.Errorf("%q: the next client waited %s, response: %t", as, waited, got)
				}
				for _, conn := range append(conns, next) {
					conn.Close()
				}
				s.stop()
				<-s.done
			})
		}
	})

	t.Run("are not closed while there is room", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := limited(t)
			first := s.halfSent("203.0.113.9", publish, "")
			time.Sleep(2 * time.Second)
			for i := range few - 2 {
				defer s.pipes.connect(fmt.Sprintf("198.51.100.%d", i)).Close()
			}
			synctest.Wait()
			if isClosed(first) {
				t.Error("a request was cut off")
			}
			first.Close()
			s.stop()
			<-s.done
		})
	})
}
