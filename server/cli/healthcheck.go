package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/socket"
)

// askTime bounds the whole of a health check: whoever runs it gives it some seconds.
const askTime = 2500 * time.Millisecond

func newHealthcheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the running server whether it is ready",
		Long: `Ask the running server whether it is ready, within three seconds, and end with 0 if it is and with 1 if not, or
if there is none. It reads the same settings as serve, to know where to ask, and never touches the database.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(cmd.Flags())
			if err != nil {
				return errors.New(err.Error()) // a health check that fails ends with 1, whatever the reason
			}
			a, err := askReady(cmd.Context(), c)
			if err != nil {
				return err
			}
			if wrong := a.wrong(); len(wrong) > 0 {
				return fmt.Errorf("%s is not ready: %s", a.where, strings.Join(wrong, "; "))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "ready: %s\n", a.where)
			return nil
		},
	}
	config.Flags(cmd.Flags())
	return cmd
}

// readiness is what /readyz says.
type readiness struct {
	where  string // as people write it
	header http.Header
	Status string `json:"status"`
	Checks map[string]struct {
		OK      bool   `json:"ok"`
		Problem string `json:"problem"`
	} `json:"checks"`
}

// wrong lists what is wrong, empty where the server is ready.
func (r readiness) wrong() []string {
	if r.Status == "ready" {
		return nil
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(r.Checks)) {
		if c := r.Checks[name]; !c.OK {
			list = append(list, name+": "+c.Problem)
		}
	}
	if len(list) == 0 {
		list = append(list, "it does not say why")
	}
	return list
}

// askReady asks the server that the settings describe: by the socket beside the database, if there is one that answers, and
// else by the address that it listens on.
func askReady(ctx context.Context, c config.Config) (readiness, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("no answer within %s", askTime))
	defer cancel()
	if path, err := socket.Path(c.Storage.Path); err == nil {
		r, err := askAt(ctx, "http://local", func(ctx context.Context) (net.Conn, error) { return socket.Dial(ctx, path) })
		if err == nil {
			r.where = path
			return r, nil
		} // else there is none, or it is left from a crash
	}
	host, port, err := net.SplitHostPort(c.Server.Listen)
	if err != nil {
		return readiness{}, err
	}
	if port == "0" {
		return readiness{}, fmt.Errorf("server.listen is %s, so nobody knows which port it is: set one", c.Server.Listen)
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	address, scheme := net.JoinHostPort(host, port), "http"
	if c.Server.TLSCertFile != "" {
		scheme = "https"
	}
	r, err := askAt(ctx, scheme+"://"+address, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	})
	if errors.Is(err, syscall.ECONNREFUSED) {
		return r, fmt.Errorf("no server listens on %s (server.listen); start one with: keyhook serve", address)
	}
	return r, err
}

// askAt asks at one address. Who answers there is this machine, whatever its certificate says.
func askAt(ctx context.Context, base string, dial func(context.Context) (net.Conn, error)) (readiness, error) {
	r := readiness{where: base}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", nil)
	if err != nil {
		return r, err
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above; nothing secret is sent
		DisableKeepAlives: true,
	}}
	resp, err := client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return r, fmt.Errorf("ask %s: %w", base, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return r, fmt.Errorf("ask %s: %w", base, err)
	}
	r.header = resp.Header
	if err := json.Unmarshal(text, &r); err != nil || r.Status == "" {
		return r, fmt.Errorf("%s answers %d and is no Keyhook; look at server.listen", base, resp.StatusCode)
	}
	return r, nil
}
