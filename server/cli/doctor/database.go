package doctor

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/dispatch/alert"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/disk"
)

// checkSettings reports the problems of the settings, and whether there are none.
func (r *report) checkSettings(flags *pflag.FlagSet) (areValid bool) {
	list, err := config.Sources(flags)
	if err != nil {
		r.wrongSettings("settings", err)
		return false
	}
	var changed []string
	for _, s := range list {
		if s.Source != "default" {
			changed = append(changed, s.Name)
		}
	}
	text := "All settings have their defaults."
	if len(changed) > 0 {
		text = "Changed from the defaults: " + strings.Join(changed, ", ")
	}
	r.ok("settings", "The settings are valid. %s", text)
	return true
}

// wrongSettings adds each of the config.Problems in err as a problem of a check.
func (r *report) wrongSettings(check string, err error) {
	var problems config.Problems
	if !errors.As(err, &problems) {
		r.failure(check, err)
	}
	for _, p := range problems {
		r.problem(check, p.Mend, "%s: %s", p.Where(), p.What)
	}
}

// checkDatabase checks the place of the database, and the database itself or the server that owns it.
func (r *report) checkDatabase(ctx context.Context, c config.Config, schema string) {
	path, owner, err := disk.Resolve(c.Storage.Path)
	if err != nil {
		r.failure("directory", err)
		return
	}
	isUsable := r.checkDirectory(path, owner)
	r.checkSpace(path)
	if found, mend := disk.Exposed(disk.Secret(path)); len(found) > 0 {
		r.warning("modes", mend, "Other users may read or change: %s", strings.Join(found, ", "))
	}
	var pid string
	var isRunning bool
	err = owner.Do(func() error { pid, isRunning = storage.Owner(path); return nil })
	switch {
	case err != nil:
		r.failure("database", err)
	case isRunning:
		r.ok("database", "The process %s owns %s. Doctor did not open the file.", pid, path)
		r.checkServer(ctx, c)
	case isUsable: // otherwise it says the same again
		r.checkFile(ctx, c, schema, owner)
	}
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

// littleSpace is in bytes. Doctor warns before the server does.
const littleSpace = 2 * disk.LowSpace

func (r *report) checkSpace(path string) {
	free, total, known := disk.Free(filepath.Dir(path)) // the file may not exist yet
	switch {
	case !known:
	case free < littleSpace || free < total/20:
		r.warning("disk", "free some space, or shorten storage.retention_events", "%d of %d MiB are free.", free>>20, total>>20)
	default:
		r.ok("disk", "%d of %d MiB are free.", free>>20, total>>20)
	}
}

// checkFile checks a database that no process owns.
func (r *report) checkFile(ctx context.Context, c config.Config, schema string, owner disk.User) {
	var state storage.State
	err := owner.Do(func() (err error) {
		state, err = storage.Examine(ctx, storage.Options{Path: c.Storage.Path, Schema: schema, EncryptionKey: c.Encryption.Key.Reveal()})
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

// checkCertificate reports when the certificate of the server expires.
func (r *report) checkCertificate(c config.Config) {
	pair, err := c.Server.Certificate()
	if err != nil {
		r.wrongSettings("tls", err)
	}
	if pair == nil {
		return
	}
	const mend = "renew server.tls_cert_file and restart the server"
	end := pair.Certificates[0].Leaf.NotAfter // it was parsed
	switch left := time.Until(end); {
	case left < 0:
		r.problem("tls", mend, "The server's certificate expired on %s.", end.UTC().Format(time.DateOnly))
	case left < alert.ExpiresSoon:
		r.warning("tls", mend, "The server's certificate expires on %s.", end.UTC().Format(time.DateOnly))
	default:
		r.ok("tls", "The server's certificate is valid until %s.", end.UTC().Format(time.DateOnly))
	}
}

// checkAlerts checks alerts.urls. It sends nothing.
func (r *report) checkAlerts(c config.Alerts) {
	channels, err := alert.Channels(c.URLs)
	switch {
	case err != nil:
		r.failure("alerts", err)
	case len(channels) == 0:
		r.ok("alerts", "Doctor found no alerts.urls. Without them, Keyhook tells nobody when a subscription is disabled or the disk is nearly full.")
	default:
		r.ok("alerts", "Keyhook tells %s. Test them with: keyhook alert test", output.Count(len(channels), "channel", "channels"))
	}
}
