package demo

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
)

// delivery is one request that the receiver got.
type delivery struct {
	header http.Header
	body   []byte
	status int // of the response
}

// receiver is an HTTPS server that keeps the deliveries it gets, and fails on demand.
type receiver struct {
	*httptest.Server
	got      chan delivery
	failures atomic.Int64
}

// newReceiver starts a receiver, and writes its certificate to a file for the server to trust. The certificate is that of the standard
// library for the loopback address.
func newReceiver(file string) (*receiver, error) {
	r := &receiver{got: make(chan delivery, 16)}
	r.Server = httptest.NewTLSServer(r)
	return r, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}), 0o600)
}

// ServeHTTP keeps the delivery and responds with 204, or with 503 as often as fail asked for.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	status := http.StatusNoContent
	if r.failures.Add(-1) >= 0 {
		status = http.StatusServiceUnavailable
	}
	r.got <- delivery{req.Header.Clone(), body, status}
	w.WriteHeader(status)
}

// fail makes the next n deliveries fail.
func (r *receiver) fail(n int64) { r.failures.Store(n) }

// next waits for a delivery.
func (r *receiver) next(ctx context.Context) (delivery, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("no delivery arrived within %s", wait))
	defer cancel()
	select {
	case d := <-r.got:
		return d, nil
	case <-ctx.Done():
		return delivery{}, context.Cause(ctx)
	}
}
