package receive

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// MaxBody bounds the body of a delivery in bytes. Keyhook's largest event has 256 KiB.
const MaxBody = 4 << 20

// Serve serves a command that receives deliveries until ctx ends. The contexts of the requests end with ctx, and requests in progress
// then get another second.
func Serve(ctx context.Context, on net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(on) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(stopping) != nil {
		server.Close()
	}
	_ = <-failed // http.ErrServerClosed
	return nil
}
