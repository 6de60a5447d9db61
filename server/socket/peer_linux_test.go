package socket_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/keyhook/keyhook/server/socket"
)

// nobody is a user who owns nothing.
const nobody = 65534

// asNobody runs f in a thread of another user. The thread ends with f, so that no other goroutine gets it.
func asNobody(t *testing.T, f func() (string, error)) (said string, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		keep := ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, nobody, keep); errno != 0 {
			err = errno
			return
		}
		said, err = f()
	}()
	<-done
	return said, err
}

func TestOthersStayOut(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
			t.Fatal("only root can be another user")
		}
		t.Skip("only root can be another user") // a failure under KEYHOOK_TEST_REQUIRE
	}
	database := filepath.Join(t.TempDir(), "keyhook.db")
	path, log := listen(t, database)
	for dir := filepath.Dir(path); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	said, err := asNobody(t, func() (string, error) { return ask(t, path) })
	if said != "" || !errors.Is(err, os.ErrPermission) {
		t.Errorf("another user was told %q, error %v", said, err)
	}
	if err := os.Chmod(path, 0o666); err != nil { // as on a file system without modes, or by an operator
		t.Fatal(err)
	}
	said, err = asNobody(t, func() (string, error) { return ask(t, path) })
	if said != "" || errors.Is(err, os.ErrPermission) {
		t.Errorf("with the mode changed, another user was told %q, error %v", said, err)
	}
	if !strings.Contains(log.String(), "refused a connection to the local socket") || !strings.Contains(log.String(), "uid=65534") {
		t.Errorf("the log says %s", log)
	}
	if said, err := ask(t, path); said != "in" {
		t.Errorf("the owner was told %q, error %v", said, err)
	}
}

// TestStranger connects to sockets of another user.
func TestStranger(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
			t.Fatal("only root can be another user")
		}
		t.Skip("only root can be another user") // a failure under KEYHOOK_TEST_REQUIRE
	}
	for _, owner := range []int{0, nobody} {
		dir := t.TempDir()
		for parent := dir; parent != os.TempDir() && parent != "/"; parent = filepath.Dir(parent) {
			if err := os.Chmod(parent, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		database := filepath.Join(dir, "keyhook.db")
		if err := errors.Join(os.Chmod(dir, 0o777|os.ModeSticky), os.WriteFile(database, nil, 0o600), os.Chown(database, owner, owner)); err != nil {
			t.Fatal(err)
		}
		if _, err := asNobody(t, func() (string, error) {
			l, err := net.Listen("unix", database+".sock")
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return "", err
		}); err != nil {
			t.Fatal(err)
		}
		conn, err := socket.Dial(t.Context(), database+".sock")
		if isForeign := owner != nobody; errors.Is(err, socket.ErrForeignProcess) != isForeign || isForeign && !strings.Contains(err.Error(), "uid 65534") {
			t.Errorf("the database belongs to %d: error %v", owner, err)
		}
		if conn != nil {
			conn.Close()
		}
	}
}
