package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/server/cli/client"
)

// childServer is this program run as a server of its own, with its database in a directory of ours.
type childServer struct {
	*child
	url, token, database string
}

// startServer runs `serve` on a free port of the loopback address with a database in dir, and waits until it is ready.
// settings are further variables of its environment.
func startServer(ctx context.Context, dir string, settings ...string) (*childServer, error) {
	s := &childServer{token: rand.Text(), database: filepath.Join(dir, "keyhook.db")}
	var ready struct {
		URL string `json:"url"`
	}
	if err := s.start(ctx, dir, readyLine(&ready), append(settings, "KEYHOOK_SERVER_LISTEN=127.0.0.1:0")); err != nil {
		return nil, err
	}
	s.url = ready.URL
	return s, nil
}

// startSilentServer does so for a server that logs no more than warnings. It does not say where it is, so a port that was
// free a moment ago has to do.
func startSilentServer(ctx context.Context, dir string, settings ...string) (*childServer, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	s := &childServer{url: "http://" + address, token: rand.Text(), database: filepath.Join(dir, "keyhook.db")}
	isReady := func([]byte) (bool, error) {
		return client.Client{Base: s.url}.Call(ctx, "GET", "/readyz/", nil, http.StatusOK, nil) == nil, nil
	}
	return s, s.start(ctx, dir, isReady, append(settings, "KEYHOOK_SERVER_LISTEN="+address, "KEYHOOK_LOG_LEVEL=warn"))
}

func (s *childServer) start(ctx context.Context, dir string, isReady func([]byte) (bool, error), settings []string) (err error) {
	settings = append([]string{
		"KEYHOOK_STORAGE_PATH=" + s.database,
		"KEYHOOK_BOOTSTRAP_TOKEN=" + s.token,
		"KEYHOOK_EGRESS_ALLOWED_NETWORKS=127.0.0.0/8",
		"KEYHOOK_SERVER_CONNECTIONS_PER_ADDRESS=" + strconv.Itoa(maxConnections),
	}, settings...)
	if s.child, err = startChild(ctx, filepath.Join(dir, "serve.log"), settings, isReady, "serve", "--log.format=json"); err != nil {
		return fmt.Errorf("start a server: %w", err)
	}
	return nil
}

// address returns its host and port.
func (s *childServer) address() string { return strings.TrimPrefix(s.url, "http://") }
