package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const nobody = 65534 // the user and the group without rights

// keyhook returns a command that runs the program in dir, without the environment of this machine.
func keyhook(tb testing.TB, dir string, args ...string) *exec.Cmd {
	tb.Helper()
	cmd := exec.Command(program(), args...)
	cmd.Dir = dir
	cmd.Env = []string{"TMPDIR=" + tb.TempDir(), "PATH=" + os.Getenv("PATH"), raceOptions}
	return cmd
}

// heedHangup makes programs that start now heed SIGHUP, also if nohup started the tests. A program that starts with an ignored signal goes
// on ignoring it, but a handler is not inherited.
func heedHangup(tb testing.TB) {
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP)
	tb.Cleanup(func() { signal.Stop(handled) })
}

// finish runs a command and returns its exit code and its output. It kills a command that takes longer than patience.
func finish(tb testing.TB, cmd *exec.Cmd) (code int, said string) {
	tb.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	context.AfterFunc(ctx, func() { cmd.Process.Kill() }) //nolint:errcheck // it has ended then
	_ = cmd.Run()                                         // the exit code says it
	return cmd.ProcessState.ExitCode(), out.String()
}

// succeed runs the program in dir. The command must succeed, and its output must contain the texts.
func succeed(tb testing.TB, dir string, args []string, texts ...string) {
	tb.Helper()
	code, said := finish(tb, keyhook(tb, dir, args...))
	if code != 0 {
		tb.Fatalf("%v: exit code %d: %s", args, code, said)
	}
	for _, text := range texts {
		if !strings.Contains(said, text) {
			tb.Errorf("%v: no %q in\n%s", args, text, said)
		}
	}
}

// require ends a test that cannot run here. That is a failure where every tool must be there.
func require(tb testing.TB, what string) {
	tb.Helper()
	if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
		tb.Fatalf("this test needs %s", what)
	}
	tb.Skipf("this test needs %s", what) // a failure under KEYHOOK_TEST_REQUIRE
}

// tool returns the path of a program that a test needs.
func tool(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		require(tb, name)
	}
	return path
}

// asNobody makes cmd run as a user without rights if this is root, and returns the id of the user that cmd runs as.
func asNobody(tb testing.TB, cmd *exec.Cmd) int {
	tb.Helper()
	if os.Getuid() != 0 {
		return os.Getuid()
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	openToAll(tb, cmd.Dir)
	return nobody
}

// openToAll lets every user enter a temporary directory.
func openToAll(tb testing.TB, dir string) {
	tb.Helper()
	for ; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
	}
}

// give makes a user the owner of files. It does nothing if this is not root.
func give(tb testing.TB, uid int, names ...string) {
	tb.Helper()
	for _, name := range names {
		if err := os.Chown(name, uid, uid); err != nil && os.Getuid() == 0 {
			tb.Fatal(err)
		}
	}
}

// contents returns a digest of each file that a refused command must leave unchanged.
func contents(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	all := map[string]string{}
	for _, name := range []string{"keyhook.db", "keyhook.db.key"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			tb.Fatal(err)
		}
		all[name] = fmt.Sprintf("%t %x", err == nil, sha256.Sum256(text))
	}
	return all
}

// mountTemporary mounts a file system in memory at a new directory, with the options of mount(8).
func mountTemporary(tb testing.TB, options string) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options+",mode=0700", "tmpfs", dir).CombinedOutput(); err != nil {
		require(tb, fmt.Sprintf("root, and to be allowed to mount (%v: %s)", err, out))
	}
	tb.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			tb.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}
