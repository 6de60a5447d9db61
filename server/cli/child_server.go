package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strings"
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
	settings = append([]string{
		"KEYHOOK_SERVER_LISTEN=127.0.0.1:0",
		"KEYHOOK_STORAGE_PATH=" + s.database,
		"KEYHOOK_BOOTSTRAP_TOKEN=" + s.token,
		"KEYHOOK_EGRESS_ALLOWED_NETWORKS=127.0.0.0/8",
	}, settings...)
	var ready struct {
		URL string `json:"url"`
	}
	var err error
	if s.child, err = startChild(ctx, filepath.Join(dir, "serve.log"), settings, &ready, "serve", "--log.format=json"); err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	s.url = ready.URL
	return s, nil
}

// address returns its host and port.
func (s *childServer) address() string { return strings.TrimPrefix(s.url, "http://") }
