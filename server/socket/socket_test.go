package socket_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/keyhook/keyhook/server/socket"
)

// text collects a log.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(b)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// listen listens next to a database and writes "in" to each accepted connection.
func listen(t *testing.T, database string) (path string, log *text) {
	t.Helper()
	log = &text{}
	l, err := socket.Listen(database, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil || l == nil {
		t.Fatalf("listener %v, error %v, log %s", l, err, log)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "in")
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	if path, err = socket.Path(database); err != nil {
		t.Fatal(err)
	}
	return path, log
}

// ask connects and returns what it reads.
func ask(t *testing.T, path string) (string, error) {
	conn, err := socket.Dial(t.Context(), path)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	said, err := io.ReadAll(conn)
	return string(said), err
}

func TestListen(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)

	t.Run("accepts its own user, hides the socket from others, and removes it at the end", func(t *testing.T) {
		t.Parallel()
		database := filepath.Join(t.TempDir(), "keyhook.db")
		l, err := socket.Listen(database, quiet)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(database + ".sock")
		if err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != os.ModeSocket {
			t.Errorf("mode %v, error %v", info.Mode(), err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(database + ".sock"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after it was closed: %v", err)
		}
		// The next owner's socket is not the last one's to remove.
		path, _ := listen(t, database)
		_ = l.Close()
		if said, err := ask(t, path); said != "in" {
			t.Errorf("the next owner says %q, error %v", said, err)
		}
	})

	t.Run("is next to the file itself, also through symbolic links", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		file, link := filepath.Join(dir, "keyhook.db"), filepath.Join(dir, "link.db")
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("keyhook.db", link)); err != nil {
			t.Fatal(err)
		}
		if path, _ := listen(t, link); path != file+".sock" {
			t.Errorf("it stands at %s", path)
		}
	})

	t.Run("replaces the socket of a killed server", func(t *testing.T) {
		t.Parallel()
		database := filepath.Join(t.TempDir(), "keyhook.db")
		left, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: database + ".sock"})
		if err != nil {
			t.Fatal(err)
		}
		left.SetUnlinkOnClose(false)
		left.Close()
		path, _ := listen(t, database)
		if said, err := ask(t, path); said != "in" {
			t.Errorf("said %q, error %v", said, err)
		}
	})

	for name, make := range map[string]func(path string) error{
		"a file":          func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) },
		"a directory":     func(path string) error { return os.Mkdir(path, 0o700) },
		"a symbolic link": func(path string) error { return os.Symlink("elsewhere", path) },
	} {
		t.Run("refuses to remove "+name+" at its path", func(t *testing.T) {
			t.Parallel()
			database := filepath.Join(t.TempDir(), "keyhook.db")
			if err := make(database + ".sock"); err != nil {
				t.Fatal(err)
			}
			_, err := socket.Listen(database, quiet)
			if !errors.Is(err, socket.ErrPathTaken) || !strings.Contains(err.Error(), "move it away") {
				t.Errorf("error %v", err)
			}
			if _, err := os.Lstat(database + ".sock"); err != nil {
				t.Errorf("it is gone: %v", err)
			}
		})
	}
}

func TestLongPath(t *testing.T) {
	t.Parallel()

	t.Run("works with a path that is longer than the address of a socket may be", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100), strings.Repeat("e", 100))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path, _ := listen(t, filepath.Join(dir, "keyhook.db"))
		if said, err := ask(t, path); said != "in" {
			t.Errorf("said %q, error %v", said, err)
		}
	})

	t.Run("works with a path of about the length that the address of a socket may have", func(t *testing.T) {
		t.Parallel()
		short, err := os.MkdirTemp("", "s")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(short) })
		for length := 102; length <= 110; length++ { // the most is 103 or 107 bytes
			dir := filepath.Join(short, strings.Repeat("d", length-len(short)-len("//keyhook.db.sock")))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path, _ := listen(t, filepath.Join(dir, "keyhook.db"))
			if said, err := ask(t, path); said != "in" || len(path) != length {
				t.Errorf("%d bytes: said %q, error %v", len(path), said, err)
			}
		}
	})

	t.Run("is only missing, with a warning, if even its name is too long", func(t *testing.T) {
		t.Parallel()
		database := filepath.Join(t.TempDir(), strings.Repeat("n", 150))
		log := &text{}
		l, err := socket.Listen(database, slog.New(slog.NewTextHandler(log, nil)))
		if l != nil || err != nil || !strings.Contains(log.String(), "set a shorter storage.path") {
			t.Errorf("listener %v, error %v, log %s", l, err, log)
		}
		if _, err := ask(t, database+".sock"); err == nil || !strings.Contains(err.Error(), "shorter storage.path") {
			t.Errorf("connecting: %v", err)
		}
	})
}
