package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/cli"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestAnErrorOfTheStoreIsPrintedWithTheFlagThatMendsIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, to := filepath.Join(dir, "keyhook.db"), filepath.Join(dir, "copy.db")
	_, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
	stop()
	for _, want := range []int{cli.ExitOK, cli.ExitFailure} {
		code, _, stderr := run(t, []string{"backup", to, "--storage.path=" + path})
		if code != want || want != cli.ExitOK && !strings.Contains(stderr, "--force") {
			t.Errorf("exit code %d, want %d: %s", code, want, stderr)
		}
	}
}
