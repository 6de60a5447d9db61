package e2e

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/keyhook/keyhook/storage/storagetest"
)

// service makes two directories. One belongs to the user nobody and contains the database of a stopped server of that user.
// Only root may use the other one. service skips the test unless it runs as root on Linux.
func service(t *testing.T) (dir, private string) {
	t.Helper()
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		require(t, "root on Linux")
	}
	dir, private = t.TempDir(), t.TempDir()
	openToAll(t, dir)
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "keyhook.db")
	_, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
	stop()
	give(t, nobody, dir, path, path+".key", path+".lock")
	return dir, private
}

// makeLogged makes a copy one with a write-ahead log, as Litestream makes them. To read it, SQLite needs to make a file beside it.
func makeLogged(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err == nil {
		_, err = db.Exec("PRAGMA journal_mode = WAL")
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// onDatabase runs a command of the program as root on the database in dir, and returns its exit code and its output.
func onDatabase(t *testing.T, dir string, args ...string) (code int, said string) {
	t.Helper()
	cmd := keyhook(t, t.TempDir(), args...)
	cmd.Env = append(cmd.Env, "KEYHOOK_STORAGE_PATH="+filepath.Join(dir, "keyhook.db"), "KEYHOOK_SERVER_LISTEN=127.0.0.1:0")
	return finish(t, cmd)
}

// owners expects all below a directory to belong to a user, and every file to be that user's alone.
func owners(t *testing.T, dir string, uid int) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if got := int(info.Sys().(*syscall.Stat_t).Uid); got != uid || e.Type().IsRegular() && info.Mode().Perm() != 0o600 {
			t.Errorf("%s belongs to %d, mode %v", name, got, info.Mode())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestRootActsAsOwner runs each command as root on the database of another user.
func TestRootActsAsOwner(t *testing.T) {
	t.Parallel()
	dir, private := service(t)
	for _, args := range [][]string{
		{"backup"}, // the first one, which makes the directory
		{"backup", filepath.Join(private, "copy.db")},
		{"restore", filepath.Join(private, "copy.db")},
		{"rekey"},
		{"doctor"},
	} {
		if code, said := onDatabase(t, dir, args...); code != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, said)
		}
		owners(t, dir, nobody)
	}
	owners(t, private, 0)

	p := start(t, dir)
	var made struct{ File string }
	p.must(t, "POST", "/api/v1/backups/", object{"keep": 1}, &made)
	owners(t, dir, nobody)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if want := fmt.Sprintf("Uid:\t%d\t%[1]d\t%[1]d\t%[1]d\nGid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", nobody); err != nil || !strings.Contains(string(status), want) {
		t.Errorf("the server runs as %s, error %v", status, err)
	}
	if code := p.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}

	t.Run("a directory of backups that root has made earlier is named, and is no conflict", func(t *testing.T) {
		give(t, 0, filepath.Join(dir, "backups"))
		p := start(t, dir)
		for _, body := range []any{nil, object{"file": "nightly.db"}} {
			if got, err := p.call(t.Context(), "POST", "/api/v1/backups/", body); err != nil || got.status != 503 {
				t.Errorf("status %d, error %v", got.status, err)
			}
		}
		p.end(syscall.SIGTERM)
		if !strings.Contains(p.said(), fmt.Sprintf("chown %d:%[1]d %s", nobody, filepath.Join(dir, "backups"))) {
			t.Errorf("the log does not say what mends that: %s", p.said())
		}
		if code, said := onDatabase(t, dir, "backup"); code != 8 || !strings.Contains(said, "chown") {
			t.Errorf("exit code %d: %s", code, said)
		}
	})

	t.Run("a database below a directory that its owner may not enter is no reason to give that away", func(t *testing.T) {
		within := filepath.Join(t.TempDir(), "private")
		openToAll(t, filepath.Dir(within))
		if err := errors.Join(os.Mkdir(within, 0o700), os.Mkdir(filepath.Join(within, "data"), 0o700)); err != nil {
			t.Fatal(err)
		}
		hidden := filepath.Join(within, "data")
		_, stop := storagetest.OpenWith(t, storagetest.Options(t, filepath.Join(hidden, "keyhook.db")))
		stop()
		give(t, nobody, hidden, filepath.Join(hidden, "keyhook.db"))
		for _, command := range []string{"backup", "rekey", "serve"} {
			if code, said := onDatabase(t, hidden, command); code != 8 || !strings.Contains(said, within+" belongs to uid 0") || !strings.Contains(said, "if only Keyhook uses ") || !strings.Contains(said, "mount namespace") {
				t.Errorf("%s: exit code %d: %s", command, code, said)
			}
		}
	})

	t.Run("a copy goes to no directory in which others could replace it", func(t *testing.T) {
		shared := t.TempDir()
		below := filepath.Join(shared, "below")
		if err := errors.Join(os.Mkdir(below, 0o700), os.Chown(shared, 0, nobody), os.Chmod(shared, 0o770)); err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{shared, filepath.Join(shared, "copy.db"), below} {
			if code, said := onDatabase(t, dir, "backup", to); code != 8 || !strings.Contains(said, "chmod go-w "+shared) {
				t.Errorf("%s: exit code %d: %s", to, code, said)
			}
		}
		for _, mode := range []os.FileMode{0o750, 0o770 | os.ModeSticky} {
			if err := os.Chmod(shared, mode); err != nil {
				t.Fatal(err)
			}
			if code, said := onDatabase(t, dir, "backup", filepath.Join(shared, fmt.Sprintf("%o.db", mode.Perm()))); code != 0 {
				t.Errorf("mode %v: exit code %d: %s", mode, code, said)
			}
		}
	})

	t.Run("a copy in a directory that all may write to is root's", func(t *testing.T) {
		sticky := t.TempDir()
		if err := os.Chmod(sticky, 0o777|os.ModeSticky); err != nil {
			t.Fatal(err)
		}
		left := filepath.Join(sticky, "keyhook.db.partial")
		if err := errors.Join(os.WriteFile(left, nil, 0o600), os.Chmod(left, 0o666)); err != nil {
			t.Fatal(err)
		}
		give(t, nobody, left)
		if code, said := onDatabase(t, dir, "backup", sticky); code != 8 || !strings.Contains(said, left) {
			t.Errorf("exit code %d: %s", code, said)
		}
		if err := os.Remove(left); err != nil {
			t.Fatal(err)
		}
		if code, said := onDatabase(t, dir, "backup", filepath.Join(sticky, "copy.db")); code != 0 {
			t.Errorf("exit code %d: %s", code, said)
		}
		owners(t, filepath.Join(sticky, "copy.db"), 0)
	})
}

// TestUnreadableCopy restores two copies. The owner of the first may not read it. SQLite would have to write beside the second, and may not.
func TestUnreadableCopy(t *testing.T) {
	t.Parallel()
	dir, _ := service(t)
	copies := t.TempDir()
	if code, said := onDatabase(t, dir, "backup", filepath.Join(copies, "copy.db")); code != 0 {
		t.Fatal(said)
	}
	from := filepath.Join(dir, "copy.db")
	if err := errors.Join(os.Rename(filepath.Join(copies, "copy.db"), from), os.Chmod(from, 0)); err != nil {
		t.Fatal(err)
	}
	give(t, nobody, from)
	if code, said := onDatabase(t, dir, "restore", from); code != 8 || !strings.Contains(said, "chmod u+rw "+from) {
		t.Errorf("exit code %d: %s", code, said)
	}
	openToAll(t, copies)
	if err := errors.Join(os.Rename(from, filepath.Join(copies, "copy.db")), os.Chmod(filepath.Join(copies, "copy.db"), 0o600)); err != nil {
		t.Fatal(err)
	}
	from = filepath.Join(copies, "copy.db")
	makeLogged(t, from)
	if code, said := onDatabase(t, dir, "restore", from); code != 8 || !strings.Contains(said, "its directory belongs to another user; if so, copy the file") {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// TestPlantedDatabase has the user of the service put a link to root's database in the place of its own.
func TestPlantedDatabase(t *testing.T) {
	t.Parallel()
	dir, private := service(t)
	_, stop := storagetest.OpenWith(t, storagetest.Options(t, filepath.Join(private, "keyhook.db")))
	stop()
	before := contents(t, private)
	path := filepath.Join(dir, "keyhook.db")
	copied := filepath.Join(private, "copy.db")
	if code, said := onDatabase(t, dir, "backup", copied); code != 0 {
		t.Fatal(said)
	}
	for _, name := range []string{path, path + ".key"} {
		if err := errors.Join(os.Remove(name), os.Symlink(filepath.Join(private, filepath.Base(name)), name), os.Lchown(name, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"serve"}, {"backup"}, {"backup", dir}, {"restore", copied}, {"rekey"}, {"doctor"}} {
		code, said := onDatabase(t, dir, args...)
		if want := map[bool]int{true: 1, false: 8}[args[0] == "doctor"]; code != want || !strings.Contains(said, private) {
			t.Errorf("%v: exit code %d: %s", args, code, said)
		}
	}
	settings := filepath.Join(dir, "keyhook.yaml")
	if err := os.Symlink(filepath.Join(private, "keyhook.db"), settings); err != nil {
		t.Fatal(err)
	}
	if code, said := onDatabase(t, dir, "config", "init", settings); code != 1 || !strings.Contains(said, settings) {
		t.Errorf("config init: exit code %d: %s", code, said)
	}
	if after := contents(t, private); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("root's files were %v and are %v", before, after)
	}
}

// TestSwappedNames runs commands as root. Meanwhile, the service user repeatedly puts links to root's file at every name that
// the commands write, and removes the links.
func TestSwappedNames(t *testing.T) {
	t.Parallel()
	dir, private := service(t)
	copied := filepath.Join(private, "copy.db")
	if code, said := onDatabase(t, dir, "backup", copied); code != 0 {
		t.Fatal(said)
	}
	target := filepath.Join(private, "target")
	if err := os.WriteFile(target, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	attacker := exec.Command("sh", "-c", `while ! [ -e stop ]; do
		for name in keyhook.db.lock keyhook.db-wal keyhook.db-shm keyhook.db-journal keyhook.db.key.part keyhook.db.restoring keyhook.db.restoring-wal backups backups/keyhook.db.partial; do
			ln -sfn "$0" $name; ln -sfn /nowhere/else $name; rm -f $name; mkdir -p backups
		done; done 2>/dev/null`, target)
	attacker.Dir = dir
	attacker.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := attacker.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { // not with a signal, which the shell's own child would survive
		noError(t, os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600), attacker.Wait())
	}()
	refused := 0
	for range 3 {
		for _, args := range [][]string{{"backup"}, {"backup", dir}, {"rekey"}, {"restore", copied}, {"doctor"}} {
			if code, said := onDatabase(t, dir, args...); code < 0 {
				t.Errorf("%v did not end: %s", args, said)
			} else if code > 0 {
				refused++
			}
		}
	}
	t.Logf("%d of 15 were refused", refused)
	text, err := os.ReadFile(target)
	if err != nil || string(text) != "root's" {
		t.Errorf("root's file is %q, error %v", text, err)
	}
	owners(t, target, 0)
}

// TestSecondMount starts a second server on the same file, as a second container with that file mounted into it.
func TestSecondMount(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		require(t, "root on Linux")
	}
	unshare := tool(t, "unshare")
	dir, other := t.TempDir(), t.TempDir()
	p := start(t, dir)
	key, err := os.ReadFile(filepath.Join(dir, "keyhook.db.key"))
	if err := errors.Join(err, os.WriteFile(filepath.Join(other, "keyhook.db.key"), key, 0o600), os.WriteFile(filepath.Join(other, "keyhook.db"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"serve", "rekey", "doctor", "backup"} {
		cmd := keyhook(t, t.TempDir(), name)
		cmd.Env = append(cmd.Env, "KEYHOOK_STORAGE_PATH="+filepath.Join(other, "keyhook.db"), "KEYHOOK_SERVER_LISTEN=127.0.0.1:0")
		cmd.Args = append([]string{unshare, "--mount", "sh", "-c", `mount --bind "$0" "$1" && shift && exec "$@"`,
			filepath.Join(dir, "keyhook.db"), filepath.Join(other, "keyhook.db"), cmd.Path}, cmd.Args[1:]...)
		cmd.Path = unshare
		code, said := finish(t, cmd)
		if code != map[string]int{"serve": 6, "rekey": 6, "doctor": 1, "backup": 6}[name] || !strings.Contains(said, "under another name") {
			t.Errorf("%s: exit code %d: %s", name, code, said)
		}
	}
	p.must(t, "POST", "/api/v1/events/", event("a", object{}), nil)
	if code := p.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	// The event, and the one of the first operator's token.
	if events := count(t, filepath.Join(dir, "keyhook.db"), "SELECT count(*) FROM events"); events != 2 {
		t.Errorf("%d events are kept", events)
	}
}
