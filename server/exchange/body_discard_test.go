package exchange_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestRefusedBodies has a client that writes its whole request before it reads the response.
func TestRefusedBodies(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	f.Plan(t, "spent", true, true, "0")
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, limited := storagetest.Key(t, f.Store, owner, access.EventsWrite)
	f.Move(t, owner.Organization.ID, "spent")

	// send writes a request with a header and n bytes of body, and returns the status of the response.
	send := func(t *testing.T, line, as, header string, n int) int {
		t.Helper()
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		w := bufio.NewWriter(conn)
		fmt.Fprintf(w, "%s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Type: application/json\r\n%s\r\n\r\n", line, as, header)
		if strings.HasPrefix(header, "Transfer-Encoding") {
			fmt.Fprintf(w, "%x\r\n", n)
		}
		if _, err := io.CopyN(w, endless{}, int64(n)); err != nil {
			t.Fatalf("the body is cut off: %v", err)
		}
		if strings.HasPrefix(header, "Transfer-Encoding") {
			fmt.Fprint(w, "\r\n0\r\n\r\n")
		}
		if err := w.Flush(); err != nil {
			t.Fatalf("the body is cut off: %v", err)
		}
		responses := bufio.NewReader(conn)
		for {
			response, err := http.ReadResponse(responses, nil)
			if err != nil {
				t.Fatalf("no response: %v", err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusContinue || n == 0 { // after 100 Continue, the client sends the body
				return response.StatusCode
			}
		}
	}
	const post = "POST /api/v1/events/"
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d", n) }
	for name, tt := range map[string]struct {
		line, as, header string
		sent, status     int
	}{
		"that are too large":                                    {post, servertest.Operator, length(12 << 20), 12 << 20, 413},
		"that are too large in chunks":                          {post, servertest.Operator, "Transfer-Encoding: chunked", 12 << 20, 413},
		"of batches that are too large":                         {post + "batch/", servertest.Operator, length(40 << 20), 40 << 20, 413},
		"without a valid credential":                            {post + "batch/", "ApiKey svc_x", length(5 << 20), 5 << 20, 401},
		"without the permission":                                {"POST /api/v1/plans/", servertest.Bearer(token), length(5 << 20), 5 << 20, 403},
		"beyond the rate limit":                                 {post + "batch/", servertest.APIKey(limited), length(5 << 20), 5 << 20, 429},
		"at an unknown path":                                    {"POST /nothing/", servertest.Operator, length(5 << 20), 5 << 20, 404},
		"that are too large to discard":                         {post, servertest.Operator, length(1 << 40), 0, 413},
		"that are too large, and wait for 100 Continue":         {post, servertest.Operator, length(12<<20) + "\r\nExpect: 100-continue", 0, 413},
		"without a valid credential, and wait for 100 Continue": {post, "ApiKey svc_x", length(99) + "\r\nExpect: 100-continue", 0, 401},
		"that are too large in chunks, and get 100 Continue":    {post, servertest.Operator, "Transfer-Encoding: chunked\r\nExpect: 100-continue", 12 << 20, 413},
		"that are right, and get 100 Continue":                  {post, servertest.Operator, length(99) + "\r\nExpect: 100-continue", 0, 100},
	} {
		t.Run("get a response: "+name, func(t *testing.T) {
			t.Parallel()
			if status := send(t, tt.line, tt.as, tt.header, tt.sent); status != tt.status {
				t.Errorf("status %d, want %d", status, tt.status)
			}
		})
	}
}

// endless is an endless stream of white space.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}
