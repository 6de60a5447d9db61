package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/socket"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// checkDatabase checks the place of the database, and the database itself or the server that owns it. It returns the settings
// to judge: those of the running server, or else c.
func (r *report) checkDatabase(ctx context.Context, c config.Config, o Options) config.Config {
	path, owner, err := disk.Resolve(c.Storage.Path)
	if err != nil {
		r.failure("directory", err)
		return c
	}
	isUsable := r.checkDirectory(path, owner)
	r.checkSpace(path)
	r.checkModes(c, path)
	if info, err := os.Stat(path + disk.WAL); err == nil && info.Size() > disk.LongLog/2 { // before the server warns
		r.warning("database", "look for a program that reads the database for a very long time, and check the disk", "The write-ahead log has %d MiB.", info.Size()>>20)
	}
	pid, isRunning := "", false
	if err := owner.Do(func() error { pid, isRunning = storage.Owner(path); return nil }); err != nil {
		r.failure("database", err)
		return c
	}
	if isRunning {
		r.ok("database", "The process %s owns %s. Doctor did not open the file.", pid, path)
		return r.checkServer(ctx, c)
	}
	if isUsable {
		r.ok("settings", "No server is running, so doctor judges the settings that it found.")
		r.checkFile(ctx, c, o, owner)
	} else {
		r.warning("settings", "run doctor as the user of the server",
			"Doctor may not use the files of the database, so it does not know whether a server is running. It judges the settings that it found.")
	}
	r.checkPort(o, "server.listen", c.Server.Listen)
	r.checkPort(o, "metrics.listen", c.Metrics.Listen)
	return c
}

// checkDirectory reports whether the files can be used.
func (r *report) checkDirectory(path string, owner disk.User) (isUsable bool) {
	mount, err := disk.MountOf(path)
	if err != nil {
		r.warning("directory", "", "Cannot find out the type of the file system: %v", err)
	}
	if err := mount.CheckMount(path); err != nil {
		r.failure("directory", err)
	} else if warning := mount.LossWarning(); warning != "" {
		r.warning("directory", "", "%s", warning)
	}
	if err := owner.Do(func() error { return disk.Check(path) }); err != nil {
		r.failure("directory", err)
		return false
	}
	r.ok("directory", "%s may write %s and its companion files.", owner, path)
	return true
}

func (r *report) checkSpace(path string) {
	free, total, known := disk.Free(filepath.Dir(path)) // the file may not exist yet
	switch {
	case !known:
	case free < 16<<20:
		r.problem("disk", "free some space, or move the database to another disk", "Only %d MiB are free. Writes will fail soon.", free>>20)
	case free < 2*disk.LowSpace || free < total/20: // before the server warns
		r.warning("disk", "free some space, or shorten storage.retention_events", "%d of %d MiB are free.", free>>20, total>>20)
	default:
		r.ok("disk", "%d of %d MiB are free.", free>>20, total>>20)
	}
}

// checkModes checks whether other users may read what is secret.
func (r *report) checkModes(c config.Config, path string) {
	names := disk.Secret(path)
	for _, name := range c.Files {
		if target, err := filepath.EvalSymlinks(name); name != "" && err == nil && !slices.Contains(names, target) {
			names = append(names, target)
		}
	}
	if found, mend := disk.Exposed(names); len(found) > 0 {
		r.warning("modes", mend, "Other users may read or change: %s", strings.Join(found, ", "))
		return
	}
	r.ok("modes", "Other users may not read the database, the key file or the files with secrets.")
}

// checkFile checks a database that no process owns.
func (r *report) checkFile(ctx context.Context, c config.Config, o Options, owner disk.User) {
	var state storage.State
	err := owner.Do(func() (err error) {
		state, err = storage.Examine(ctx, storage.Options{Path: c.Storage.Path, Schema: o.Schema, EncryptionKey: c.Encryption.Key.Reveal()})
		return err
	})
	switch {
	case err != nil:
		r.failure("database", err)
	case state == storage.None:
		r.ok("database", "There is no database yet. The first start of serve creates it.")
	case state == storage.LeftOpen:
		r.warning("database", "start the server, which checks the file first", "The last process did not close the database, as after a crash.")
	case state == storage.Outdated:
		r.ok("database", "The schema is older than this version. The next start copies and upgrades the database. The encryption key is right.")
	default:
		r.ok("database", "The schema fits this version, and the encryption key is right. No server is running.")
	}
}

// checkPort checks whether a server could listen on an address, unless it is empty.
func (r *report) checkPort(o Options, setting, address string) {
	if address == "" {
		return
	}
	l, err := o.Listen(setting, address)
	if err != nil {
		r.failure("port", err)
		return
	}
	l.Close()
	if _, port, _ := net.SplitHostPort(address); port != "0" {
		r.ok("port", "%s: %s is free.", setting, address)
	}
}

// readiness is the response of /readyz.
type readiness struct {
	where    string   // the URL or the socket
	failures []string // the checks that fail; none if the server is ready
	warnings []string // what an operator should know although the server is ready
	Status   string   `json:"status"`
	Checks   map[string]struct {
		OK      bool   `json:"ok"`
		Problem string `json:"problem"`
		Warning string `json:"warning"`
	} `json:"checks"`
	Settings map[string]string `json:"settings"` // nil if the response did not come over the socket
}

// askReady asks the server of these settings: over the socket beside the database, or else at the address that it listens
// on, because some file systems have no sockets. A socket that does not respond may be left from a crash. Another server may have the address.
func askReady(ctx context.Context, c config.Config) (readiness, error) {
	const limit = 2500 * time.Millisecond // of both tries; container runtimes kill a health check after some seconds
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no response within %s", limit))
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
	} else if err == nil && isUnused(c.Storage.Path) {
		err = fault.Advise(fmt.Errorf("no server is running for %s; %s is another server", c.Storage.Path, address),
			"look why this one does not start, or set storage.path")
	}
	return r, err
}

// isUnused reports whether no process owns a database, as far as this user may know.
func isUnused(database string) (unused bool) {
	path, owner, err := disk.Resolve(database)
	if err == nil {
		err = owner.Do(func() error {
			_, running := storage.Owner(path)
			unused = !running
			_, err := os.ReadFile(path + disk.Lock)
			return err
		})
	}
	return !errors.Is(err, fs.ErrPermission) && (unused || err != nil)
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
	for _, name := range slices.Sorted(maps.Keys(r.Checks)) {
		switch c := r.Checks[name]; {
		case !c.OK:
			r.failures = append(r.failures, name+": "+c.Problem)
		case c.Warning != "":
			r.warnings = append(r.warnings, name+": "+c.Warning)
		}
	}
	return r, nil
}

// checkServer asks the running server whether it is ready, and with which settings it runs. It says how they differ from those that
// this command has found. It returns the settings of the server, or else found.
func (r *report) checkServer(ctx context.Context, found config.Config) config.Config {
	ready, err := askReady(ctx, found)
	if err != nil {
		r.problem("server", "run doctor with the same settings as the server, and look at the log of the server",
			"A server owns the database, but does not respond: %v", err)
		return found
	}
	for _, failure := range ready.failures {
		r.problem("server", "look at the log of the server", "%s", failure)
	}
	for _, warning := range ready.warnings {
		r.warning("server", "look at keyhook queue show, keyhook clock, and the log of the server", "%s", warning)
	}
	if len(ready.failures) == 0 {
		r.ok("server", "%s is ready.", ready.where)
	}
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
