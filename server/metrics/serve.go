package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/net/netutil"

	"github.com/keyhook/keyhook/server/share"
)

// Limits of a connection, which needs no credential.
const (
	readTimeout    = 5 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 5 * time.Minute // longer than the time between two scrapes
	maxHeaderBytes = 8 << 10
	maxConnections = 64
	grace          = 5 * time.Second // for scrapes in progress at a stop
)

// unlessRebound returns a handler that refuses a request to a loopback address if the request names another host. Another site may have
// led a browser on this machine there.
func unlessRebound(listens net.Addr, next http.Handler) http.Handler {
	address, err := netip.ParseAddrPort(listens.String())
	if err != nil || !address.Addr().IsLoopback() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !share.NamesLoopback(r) {
			http.Error(w, "The host of this request is not this machine; use localhost, or set metrics.listen to another address.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Serve serves only /metrics, in plain HTTP and without credentials, on l until ctx ends. It owns l and closes it.
func (m *Metrics) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m)
	mux.Handle("GET /metrics/{$}", m)
	server := &http.Server{
		Handler: unlessRebound(l.Addr(), mux), DisableGeneralOptionsHandler: true, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(netutil.LimitListener(l, maxConnections)) }()
	select {
	case err := <-served:
		return errors.Join(fmt.Errorf("serve metrics at %s: %w", l.Addr(), err), server.Close())
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := server.Shutdown(ending)
	if err != nil {
		err = server.Close()
	}
	_ = <-served // http.ErrServerClosed
	return err
}
