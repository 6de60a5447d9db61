package doctor

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/disk"
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
	var pid string
	var isRunning bool
	if err := owner.Do(func() error { pid, isRunning = storage.Owner(path); return nil }); err != nil {
		r.failure("database", err)
		return c
	}
	if isRunning {
		r.ok("database", "The process %s owns %s. Doctor did not open the file.", pid, path)
		return r.checkServer(ctx, c)
	}
	r.ok("settings", "No server is running, so doctor judges the settings that it found.")
	if isUsable { // otherwise it says the same again
		r.checkFile(ctx, c, o, owner)
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
	add := func(name string) {
		if target, err := filepath.EvalSymlinks(name); name != "" && err == nil && !slices.Contains(names, target) {
			names = append(names, target)
		}
	}
	add(os.Getenv(config.EnvFile))
	add(c.Server.TLSKeyFile)
	for _, s := range config.Settings() {
		if s.Secret {
			add(os.Getenv(s.Env + "_FILE"))
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
