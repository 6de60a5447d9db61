package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/share"
)

// The limits of a connection. The timeouts are for callers: a request that is not read within readTimeout is cut off. The same
// timeout cancels the context of a handler that takes longer. Handlers that need more time extend the deadlines of their exchange.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 16 << 10

	// Of one HTTP/2 connection.
	maxStreams     = 16        // requests at once: anybody may open them, and each has headers
	maxFrameBytes  = 16 << 10  // net/http has a buffer for the largest frame
	maxUnreadBytes = 256 << 10 // bytes of bodies that it may send before a handler reads them
)

var errStopped = errors.New("the server has stopped")

// Serve responds to requests from l until ctx ends. Then it accepts no more, gives running requests the shutdown grace, cancels the rest,
// and returns nil when all have returned. It closes l. The caller listens, so that a busy port is an error before anything starts.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	return s.serve(ctx, l, s, s.options.TLS)
}

// ServeLocal is Serve for the local socket, without TLS. Requests without a credential act as the built-in operator. The listener
// decides who may connect. If l is nil, ServeLocal does nothing.
func (s *Server) ServeLocal(ctx context.Context, l net.Listener) error {
	if l == nil {
		return nil
	}
	return s.serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.respond(w, r, true) }), nil)
}

func (s *Server) serve(ctx context.Context, l net.Listener, h http.Handler, tls *tls.Config) error {
	defer s.unknown.Report(true)
	requests, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(errStopped)
	server := s.httpServer(requests, h, tls)
	limited := share.NewListener(l, s.connections, s.options.Logger) // below TLS: net/http must recognize its own TLS connections
	limited.Watch(server)
	served := make(chan error, 1)
	go func() {
		if tls != nil {
			served <- server.ServeTLS(limited, "", "")
			return
		}
		served <- server.Serve(limited)
	}()
	select {
	case err := <-served:
		cut(errStopped)
		err = errors.Join(fmt.Errorf("serve %s: %w", l.Addr(), err), server.Close())
		s.underway.Wait() // the caller closes the store next
		return err
	case <-ctx.Done():
	}
	s.draining.Store(true)
	s.stop() // readers of feeds that wait
	grace, cancel := context.WithTimeoutCause(requests, s.options.ShutdownGrace, errors.New("requests ran longer than server.shutdown_grace"))
	defer cancel()
	err := server.Shutdown(grace)
	if err != nil {
		s.options.Logger.LogAttrs(ctx, slog.LevelWarn, "shutdown canceled running requests", slog.Any("cause", context.Cause(grace)))
		cut(errStopped)
		err = server.Close()
		s.underway.Wait() // their contexts have ended
	}
	_ = <-served // http.ErrServerClosed
	return err
}

func (s *Server) httpServer(requests context.Context, h http.Handler, tls *tls.Config) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(tls != nil)
	return &http.Server{
		Handler:                      h,
		DisableGeneralOptionsHandler: true, // "OPTIONS *" is an unknown path like any other
		TLSConfig:                    tls,
		Protocols:                    protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrameBytes,
			MaxReceiveBufferPerConnection: maxUnreadBytes, MaxReceiveBufferPerStream: maxUnreadBytes,
			WriteByteTimeout: exchange.WriteTimeout, // the timeout of a response cannot end it while the whole connection is stuck
		},
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      exchange.WriteTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(s.unknown, "", 0),
		BaseContext:       func(net.Listener) context.Context { return requests },
	}
}
