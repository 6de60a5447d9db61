package receive

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/keyhook/keyhook/server/cli/output"
)

const (
	forwardTimeout = 30 * time.Second // longer than a sender waits
	maxResponse    = 1 << 20          // bytes of a response that go back
)

// forwarding is the client for --forward. It uses no proxy, and returns redirects as they are.
var forwarding = &http.Client{
	Transport:     &http.Transport{},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// forward sends a delivery to a program with the same bytes and headers, and returns the program's response to the sender.
// Without a response, it responds with 502, as a proxy does. It returns the status, and a note about the response.
func forward(w http.ResponseWriter, r *http.Request, to string, body []byte) (status int, note string) {
	ctx, cancel := context.WithTimeout(r.Context(), forwardTimeout)
	defer cancel()
	resp, err := send(ctx, r, to, body)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return http.StatusBadGateway, fmt.Sprintf("the delivery could not be forwarded: %v", err)
	}
	maps.Copy(w.Header(), resp.header)
	w.WriteHeader(resp.status)
	_, _ = w.Write(resp.body) // an error means that the sender is gone
	note = "from " + to
	if text := output.Shorten(string(bytes.TrimSpace(resp.body)), 200); text != "" {
		note += ": " + text
	}
	return resp.status, note
}

// response is the response of the program.
type response struct {
	status int
	header http.Header
	body   []byte
}

// send sends a delivery on and reads the response.
func send(ctx context.Context, r *http.Request, to string, body []byte) (response, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, to, bytes.NewReader(body))
	if err != nil {
		return response{}, err
	}
	req.Header = withoutConnection(r.Header)
	resp, err := forwarding.Do(req)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	return response{resp.StatusCode, withoutConnection(resp.Header), text}, err
}

// withoutConnection returns headers without those that belong to one connection. net/http sets Content-Length.
func withoutConnection(h http.Header) http.Header {
	h = h.Clone()
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
	} {
		h.Del(name)
	}
	return h
}
