package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/cli"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestAnErrorOfTheStoreIsPrintedWithTheFlagThatMendsIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	_, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
	stop()
	refused := func(t *testing.T, want int, flag string, args ...string) {
		t.Helper()
		if code, _, stderr := run(t, append(args, "--storage.path="+path)); code != want || !strings.Contains(stderr, flag) {
			t.Errorf("exit code %d, want %d: %s", code, want, stderr)
		}
	}
	refused(t, cli.ExitFailure, `name a file that "keyhook backup" has made`, "restore", path+".none")
	refused(t, cli.ExitFile, `name a file that "keyhook backup" has made`, "restore", "mend_test.go")
	to := path + ".copy"
	if err := os.WriteFile(to, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, cli.ExitFailure, "replace it with --force", "backup", to)
	if err := os.Remove(path + ".key"); err != nil {
		t.Fatal(err)
	}
	refused(t, cli.ExitKey, "--old-key-file", "rekey")
}
