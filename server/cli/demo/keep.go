package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/keyhook/keyhook/server/cli/child"
)

// keep runs a server with a week of data until ctx ends.
func (o Options) keep(ctx context.Context, out io.Writer) error {
	dir, err := temporary()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	receiver := httptest.NewServer(http.HandlerFunc(receive))
	defer receiver.Close()
	fmt.Fprintln(out, "Writing a week of data. It takes a few seconds.")
	token, err := writeWeek(ctx, filepath.Join(dir, "keyhook.db"), o.Schema, receiver.URL+"/")
	if err != nil {
		return fmt.Errorf("cannot write the data of the demo: %w", err)
	}
	server, err := child.Start(ctx, dir, "KEYHOOK_EGRESS_ALLOW_HTTP=true")
	if err != nil {
		return err
	}
	defer server.Kill()
	fmt.Fprintf(out, "\nConsole:  %s/console/\nSign in:  %s\nStop:     press Ctrl C. The data is in %s, and is removed then.\n", server.URL, token.Reveal(), dir)
	<-ctx.Done()
	return server.Stop(context.WithoutCancel(ctx))
}

// receive is what the receivers of the companies do: those that are down answer with 503.
func receive(w http.ResponseWriter, r *http.Request) {
	for _, c := range companies {
		for _, e := range c.endpoints {
			if e.down > 0 && filepath.Base(r.URL.Path) == e.path {
				http.Error(w, e.failure, http.StatusServiceUnavailable)
				return
			}
		}
	}
	w.WriteHeader(http.StatusNoContent)
}
