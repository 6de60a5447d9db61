package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/socket"
	"github.com/keyhook/keyhook/storage/fault"
)

// readyTimeout bounds the whole question. Container runtimes kill a health check after some seconds.
const readyTimeout = 2500 * time.Millisecond

// readiness is the response of /readyz.
type readiness struct {
	where  string // the URL or the socket
	Status string `json:"status"`
	Checks map[string]struct {
		OK      bool   `json:"ok"`
		Problem string `json:"problem"`
	} `json:"checks"`
	Settings map[string]string `json:"settings"` // nil if the response did not come over the socket
}

// failures lists the checks that fail. It is empty if the server is ready.
func (r readiness) failures() (list []string) {
	for _, name := range slices.Sorted(maps.Keys(r.Checks)) {
		if c := r.Checks[name]; !c.OK {
			list = append(list, name+": "+c.Problem)
		}
	}
	return list
}

// askReady asks the server of these settings: over the socket beside the database, or else at the address that it listens
// on. A socket that does not respond may be left from a crash.
func askReady(ctx context.Context, c config.Config) (readiness, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("no response within %s", readyTimeout))
	defer cancel()
	if path, err := socket.Path(c.Storage.Path); err == nil {
		overSocket := func(ctx context.Context, _, _ string) (net.Conn, error) { return socket.Dial(ctx, path) }
		if r, err := ask(ctx, path, "http://local", &http.Transport{DialContext: overSocket}); err == nil {
			return r, nil
		}
	}
	c.Server.BaseURL = "" // a proxy may be there
	address := c.Server.URL(c.Server.Listen)
	// The address is always this machine, and its certificate may name another host.
	anyName := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see above; the request has no secret
	r, err := ask(ctx, address, address, &http.Transport{TLSClientConfig: anyName})
	if errors.Is(err, syscall.ECONNREFUSED) {
		err = fault.Advise(fmt.Errorf("no server listens on %s (server.listen)", address), "start it with \"keyhook serve\"")
	}
	return r, err
}

func ask(ctx context.Context, where, base string, transport *http.Transport) (readiness, error) {
	transport.DisableKeepAlives = true
	r := readiness{where: where}
	response, err := client.Client{Base: base, Transport: transport}.Send(ctx, http.MethodGet, "/readyz", nil)
	if err != nil {
		return r, fmt.Errorf("cannot ask %s: %w", where, cmp.Or(context.Cause(ctx), err))
	}
	if err := json.Unmarshal(response.Body, &r); err != nil || r.Status == "" {
		return r, fault.Advise(fmt.Errorf("the response of %s (%d) does not come from Keyhook", where, response.Status), "check server.listen")
	}
	return r, nil
}

// checkServer asks the running server whether it is ready, and with which settings it runs. It returns these settings.
func (r *report) checkServer(ctx context.Context, c config.Config) config.Config {
	ready, err := askReady(ctx, c)
	if err != nil {
		r.problem("server", "run doctor with the same settings as the server, and look at the log of the server",
			"A server owns the database, but does not respond: %v", err)
		return c
	}
	failures := ready.failures()
	for _, failure := range failures {
		r.problem("server", "look at the log of the server", "%s", failure)
	}
	if len(failures) == 0 {
		r.ok("server", "%s is ready.", ready.where)
	}
	return r.settingsOf(ready, c)
}

// settingsOf returns the settings of the running server, and says how they differ from those that this command has found.
func (r *report) settingsOf(ready readiness, found config.Config) config.Config {
	if ready.Settings == nil {
		r.warning("settings", "run doctor as the user of the server", "Doctor cannot ask the server for its settings over its socket, so it judges the settings that it found.")
		return found
	}
	judged, err := found.WithTexts(ready.Settings)
	if err != nil {
		r.warning("settings", "run the doctor of the same version as the server", "Doctor does not understand the settings of the server, so it judges the settings that it found: %v", err)
		return found
	}
	r.serverHasAlerts = ready.Settings["alerts.urls"] != ""
	text, own := "The server runs with the same settings.", found.Texts()
	if different := config.Differences(own, ready.Settings); len(different) > 0 {
		text = "The server runs with other settings than doctor found, such as from its flags or from before a change. " +
			"Doctor judges the settings of the server."
		for _, name := range different {
			text += fmt.Sprintf("\n%s is %q there and %q here", name, ready.Settings[name], own[name])
		}
	}
	r.ok("settings", "%s", text)
	return judged
}
