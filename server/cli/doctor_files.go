package cli

import (
	"context"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/disk"
)

// What is told of the disk.
const (
	littleRoom = 512 << 20
	noRoom     = 16 << 20
	longLog    = 128 << 20 // bytes of the write-ahead log
)

// files looks at the place of the database, and at the database or at the server that owns it.
func (d *examination) files(ctx context.Context, c config.Config) {
	path, owner, err := disk.Resolve(c.Storage.Path)
	if err != nil {
		d.refused("directory", err)
		return
	}
	mount, err := disk.MountOf(path)
	if err != nil {
		d.warn("directory", "", "its file system cannot be found out: %v", err)
	}
	if err := mount.CheckMount(path); err != nil {
		d.refused("directory", err)
	} else if warning := mount.Passing(); warning != "" {
		d.warn("directory", "", "%s", warning)
	}
	if err := owner.Do(func() error { return disk.Check(path) }); err != nil {
		d.refused("directory", err)
	} else {
		d.well("directory", "%s and its files may be written by %s", path, owner)
	}
	d.room(path)
	d.modes(c, path)
	if info, err := os.Stat(path + "-wal"); err == nil && info.Size() > longLog {
		d.warn("database", "look for a client that reads for very long, and at the disk", "the write-ahead log is %d MiB long", info.Size()>>20)
	}
	var pid string
	var running bool
	if err := owner.Do(func() error { pid, running = storage.Owner(path); return nil }); err != nil {
		d.refused("database", err)
		return
	}
	if running {
		d.well("database", "process %s owns %s; it was not touched", pid, path)
		d.server(ctx, c)
		return
	}
	d.database(ctx, c, owner)
	d.free("server.listen", c.Server.Listen)
	if c.Metrics.Listen != "" {
		d.free("metrics.listen", c.Metrics.Listen)
	}
}

func (d *examination) room(path string) {
	free, total, known := disk.Free(path)
	if !known { // there may be no file yet
		free, total, known = disk.Free(filepath.Dir(path))
	}
	switch {
	case !known:
		return
	case free < noRoom:
		d.wrong("disk", "make room, or move the database to another disk", "%d MiB are free: nothing can be written soon", free>>20)
	case free < littleRoom || free < total/20:
		d.warn("disk", "make room, or shorten storage.retention_events", "%d MiB of %d are free", free>>20, total>>20)
	default:
		d.well("disk", "%d MiB of %d are free", free>>20, total>>20)
	}
}

// modes looks at who else may read what is secret.
func (d *examination) modes(c config.Config, path string) {
	names := []string{path, path + disk.Key, os.Getenv(config.EnvFile), c.Server.TLSKeyFile}
	for _, s := range config.Settings() {
		if strings.HasSuffix(s.Env, "_FILE") && s.Env != "KEYHOOK_SERVER_TLS_CERT_FILE" && s.Env != "KEYHOOK_EGRESS_CA_FILE" {
			names = append(names, os.Getenv(s.Env))
		}
	}
	open := false
	seen := map[string]bool{"": true}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		info, err := os.Stat(name)
		if isOurs := name == path || name == path+disk.Key; isOurs {
			info, err = os.Lstat(name) // a link there may have been planted, and its target must not be changed
		}
		if err != nil || info.Mode().Type() == fs.ModeSymlink {
			continue
		}
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			open = true
			d.warn("modes", "run: chmod 600 "+name, "%s has mode %04o: others than its owner may use it", name, mode)
		}
	}
	if !open {
		d.well("modes", "database, key and secrets are their owner's alone")
	}
}

// database looks at a file that nobody owns.
func (d *examination) database(ctx context.Context, c config.Config, owner disk.User) {
	var state storage.State
	err := owner.Do(func() (err error) {
		state, err = storage.Examine(ctx, storage.Options{Path: c.Storage.Path, Schema: d.schema, EncryptionKey: c.Encryption.Key.Reveal()})
		return err
	})
	switch {
	case err != nil:
		d.refused("database", err)
	case state == storage.None:
		d.well("database", "there is none yet; serve makes it at its first start")
	case state == storage.LeftOpen:
		d.warn("database", "start the server, which checks the file first", "its last owner has not closed it, as after a crash")
	case state == storage.Outdated:
		d.well("database", "its schema is an older one: the next start sets a copy aside and upgrades it; the encryption key fits it")
	case state == storage.Changing:
		d.warn("database", "run keyhook rekey while no server runs", "a change of its encryption key is not finished; the keys at hand fit it")
	default:
		d.well("database", "it is of this version's schema, and the encryption key fits it; no server runs")
	}
}

// free looks whether a server could listen.
func (d *examination) free(setting, address string) {
	l, err := Listen(setting, address)
	if err != nil {
		d.refused("port", err)
		return
	}
	l.Close()
	if _, port, _ := net.SplitHostPort(address); port != "0" {
		d.well("port", "%s: %s is free", setting, address)
	}
}

// server asks the running server how it is.
func (d *examination) server(ctx context.Context, c config.Config) {
	r, err := askReady(ctx, c)
	if err != nil {
		d.wrong("server", "call doctor with the settings of that server; if they are, look at its log", "it owns the database and does not answer: %v", err)
		return
	}
	wrong := r.wrong()
	for _, w := range wrong {
		d.wrong("server", "look at its log", "%s", w)
	}
	if len(wrong) == 0 {
		d.well("server", "%s is ready", r.where)
	}
	d.skew("clock", "the server", r.header, time.Now())
}

// What clocks may differ by: receivers refuse signatures that are some minutes old.
const (
	smallSkew = 5 * time.Second
	largeSkew = 2 * time.Minute
)

// skew compares the clock of who answered with this machine's. The header tells whole seconds.
func (d *examination) skew(check, who string, header http.Header, now time.Time) {
	at, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	switch by := now.Sub(at).Round(time.Second); {
	case by.Abs() > largeSkew:
		d.wrong(check, "set both clocks by NTP; signatures of another time are refused", "the clock of %s differs from this machine's by %s", who, by)
	case by.Abs() > smallSkew:
		d.warn(check, "set both clocks by NTP", "the clock of %s differs from this machine's by %s", who, by)
	default:
		d.well(check, "the clock of %s agrees with this machine's", who)
	}
}
