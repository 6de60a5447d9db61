package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"
)

// forwardTimeout is more than a sender waits.
const forwardTimeout = 30 * time.Second

// maxForwarded bounds what is handed back of an answer.
const maxForwarded = 1 << 20

// connectionHeaders are between two neighbours, and not passed on.
var connectionHeaders = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Content-Length", // is set by what is sent
}

// forward sends a delivery on, its bytes and headers as they came, and hands the answer back. Redirects are handed back
// too. Where there is no answer, it answers 502 as a proxy would.
func forward(w http.ResponseWriter, r *http.Request, to string, body []byte) answered {
	ctx, cancel := context.WithTimeout(r.Context(), forwardTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.Method, to, bytes.NewReader(body))
	if err != nil {
		return badGateway(w, err)
	}
	req.Header = passedOn(r.Header)
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return badGateway(w, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxForwarded))
	if err != nil {
		return badGateway(w, err)
	}
	maps.Copy(w.Header(), passedOn(resp.Header))
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(text) // where the sender is gone, nobody is left to tell
	note := "by " + to
	if shown := escaped(shortened(string(bytes.TrimSpace(text)), 200)); shown != "" {
		note += ": " + shown
	}
	return answered{status: resp.StatusCode, note: note}
}

func badGateway(w http.ResponseWriter, err error) answered {
	w.WriteHeader(http.StatusBadGateway)
	return answered{status: http.StatusBadGateway, note: fmt.Sprintf("it could not be forwarded: %v", err)}
}

// passedOn returns the headers that are not for one connection alone.
func passedOn(h http.Header) http.Header {
	h = h.Clone()
	for _, name := range connectionHeaders {
		h.Del(name)
	}
	return h
}
