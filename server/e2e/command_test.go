package e2e

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const nobody = 65534 // the user and the group without rights

// keyhook returns a command that runs the program away from the settings of this machine.
func keyhook(tb testing.TB, args ...string) *exec.Cmd {
	tb.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Dir = tb.TempDir()
	cmd.Env = []string{"TMPDIR=" + tb.TempDir(), "PATH=" + os.Getenv("PATH")}
	return cmd
}

// require ends a test that cannot run here. That is a failure where every tool must be there.
func require(tb testing.TB, what string) {
	tb.Helper()
	if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
		tb.Fatalf("this test needs %s", what)
	}
	tb.Skipf("this test needs %s", what) // a failure under KEYHOOK_TEST_REQUIRE
}

// give has files belong to a user.
func give(tb testing.TB, uid int, names ...string) {
	tb.Helper()
	for _, name := range names {
		if err := os.Chown(name, uid, uid); err != nil && os.Getuid() == 0 {
			tb.Fatal(err)
		}
	}
}

// contents returns a digest of each file that a refused command must leave as it was.
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
