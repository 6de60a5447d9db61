package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
)

// counterpartReady is the line by which the counterpart says where it is. Each endpoint has a port of its own, as real
// receivers have a host of their own.
type counterpartReady struct {
	Message   string   `json:"msg"`
	Endpoints []string `json:"endpoints"` // as http://127.0.0.1:1234
	Bare      string   `json:"bare"`      // host and port of the bare handler
}

// newCounterpart returns the command of the process that bench starts beside the server: the receiver, and the bare
// handler that authenticated requests are compared with. It runs until it is killed.
func newCounterpart() *cobra.Command {
	endpoints := 1
	cmd := &cobra.Command{
		Use:    "bench-counterpart",
		Short:  "What bench sends to",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A terminal interrupts all processes at once. What has to be done then is for bench, which ends this one.
			signal.Ignore(os.Interrupt)
			return counterpart(cmd.Context(), cmd.ErrOrStderr(), endpoints)
		},
	}
	bounded(cmd.Flags(), &endpoints, "endpoints", 1, 2*maxFanout, "listen on so many ports")
	return cmd
}

func counterpart(ctx context.Context, out io.Writer, endpoints int) error {
	ready := counterpartReady{Message: "ready"}
	receiver := &http.Server{Handler: newBenchReceiver(), ReadHeaderTimeout: bareHeaderTimeout, ErrorLog: log.New(io.Discard, "", 0)}
	all, ctx := errgroup.WithContext(ctx)
	listen := func() (net.Listener, error) { return new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0") }
	for range endpoints {
		l, err := listen()
		if err != nil {
			return errors.Join(fmt.Errorf("open port %d of %d: %w", len(ready.Endpoints)+1, endpoints, err), receiver.Close())
		}
		ready.Endpoints = append(ready.Endpoints, "http://"+l.Addr().String())
		all.Go(func() error { return receiver.Serve(l) })
	}
	l, err := listen()
	if err != nil {
		return errors.Join(err, receiver.Close())
	}
	ready.Bare = l.Addr().String()
	all.Go(func() error { return newBareServer().Serve(netutil.LimitListener(l, bareConnections)) })
	if err := json.NewEncoder(out).Encode(ready); err != nil {
		return err
	}
	return all.Wait()
}

// How serve serves, and so the bare handler beside it.
const (
	bareHeaderTimeout = 5 * time.Second
	bareReadTimeout   = 15 * time.Second
	bareWriteTimeout  = 30 * time.Second
	bareIdleTimeout   = 60 * time.Second
	bareConnections   = 1024
)

// barePath is where the bare handler answers a JSON object of so many bytes, or nothing.
const barePath = "/api/v1/bare/:bytes/"

// newBareServer returns a server with nothing but a router and an answer: what a request costs before Keyhook does
// anything for it.
func newBareServer() *http.Server {
	filling := strings.Repeat("x", 64<<10)
	router := httprouter.New()
	router.GET(barePath, func(w http.ResponseWriter, _ *http.Request, p httprouter.Params) {
		size, err := strconv.Atoi(p.ByName("bytes"))
		if err == nil && size == 0 {
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(http.StatusOK)
			return
		}
		text := size - len("{\"text\":\"\"}\n")
		if err != nil || text < 0 || text > len(filling) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(size))
		respond(w, struct {
			Text string `json:"text"`
		}{filling[:text]})
	})
	return &http.Server{
		Handler:           router,
		ReadHeaderTimeout: bareHeaderTimeout,
		ReadTimeout:       bareReadTimeout,
		WriteTimeout:      bareWriteTimeout,
		IdleTimeout:       bareIdleTimeout,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
}
