package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/cli/client"
)

// TestEventTypesAreCompleted asks a server that takes no parameter, as the list of event types does. Not parallel: it sets the environment.
func TestEventTypesAreCompleted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/api/v1/event-types/" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, `{"data":[{"type":"order.paid","description":"An order was paid."},{"type":"order.live","description":null}]}`)
	}))
	t.Cleanup(server.Close)
	t.Setenv(client.EnvURL, server.URL)
	t.Setenv(client.EnvToken, "kat_x")
	for _, line := range []string{
		"event-types get", "events publish", "events list --type", "subscriptions create --event-types", "subscriptions test sub_x --event-type",
	} {
		_, stdout, _ := run(t, append([]string{"__complete"}, append(strings.Fields(line), "")...))
		if !strings.HasPrefix(stdout, "order.paid\tAn order was paid.\norder.live\n") {
			t.Errorf("%s offers %q", line, stdout)
		}
	}
}
