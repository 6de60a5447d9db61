package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// What a connection may cost. The times are a caller's, not a handler's: a request that is not read in readTimeout is
// cut, and with it the context of a handler that takes longer. Routes that need more say so; see call.extend.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 16 << 10
	maxStreams        = 100       // of one HTTP/2 connection
	maxUnreadBytes    = 256 << 10 // bytes of bodies that one HTTP/2 connection may send before a handler reads them
)

// errStopped is the cause by which the contexts of requests end that outlive the grace.
var errStopped = errors.New("the server has stopped")

// Serve answers requests from l until ctx ends; then it stops accepting, lets requests under way end for as long as the
// grace, cuts the rest, and returns nil once all have returned. It owns l and closes it. Listening is the caller's, so
// that a busy port is an error before anything has begun.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	return s.serve(ctx, l, s, s.tls)
}

// ServeLocal does so for the local socket: without TLS, and those who send no credential act as the built-in operator.
// Whoever may connect is the listener's to say. A nil listener is none, and nothing is done.
func (s *Server) ServeLocal(ctx context.Context, l net.Listener) error {
	if l == nil {
		return nil
	}
	return s.serve(ctx, l, s.LocalHandler(), nil)
}

func (s *Server) serve(ctx context.Context, l net.Listener, h http.Handler, tls *tls.Config) error {
	defer s.unknown.report(true)
	requests, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(errStopped)
	server := s.httpServer(requests, h, tls)
	shared := s.newConnections(l) // beneath TLS: above it, net/http would not recognize its own connections
	server.ConnState = shared.onStateChange
	served := make(chan error, 1)
	go func() {
		if tls != nil {
			served <- server.ServeTLS(shared, "", "")
			return
		}
		served <- server.Serve(shared)
	}()
	select {
	case err := <-served:
		cut(errStopped)
		err = errors.Join(fmt.Errorf("serve %s: %w", l.Addr(), err), server.Close())
		s.underway.Wait() // the store is closed next
		return err
	case <-ctx.Done():
	}
	s.draining.Store(true)
	grace, cancel := context.WithTimeoutCause(requests, s.grace, errors.New("requests outlived the grace"))
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "requests cut at shutdown", slog.Any("cause", context.Cause(grace)))
		cut(errStopped)
		err = server.Close()
		_ = <-served      // http.ErrServerClosed
		s.underway.Wait() // what waits on its context returns now
		return err
	}
	_ = <-served // http.ErrServerClosed
	return nil
}

func (s *Server) httpServer(requests context.Context, h http.Handler, tls *tls.Config) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(tls != nil)
	return &http.Server{
		Handler:                      h,
		DisableGeneralOptionsHandler: true, // "OPTIONS *" is a path like any other: unknown
		TLSConfig:                    tls,
		Protocols:                    protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: maxUnreadBytes, MaxReceiveBufferPerStream: maxUnreadBytes,
		},
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return requests },
	}
}
