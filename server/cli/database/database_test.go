package database_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/database"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// run runs a command on the database at path.
func run(t *testing.T, path string, made func(database.Options) *cobra.Command, args ...string) (out string, err error) {
	t.Helper()
	var text strings.Builder
	cmd := made(database.Options{Schema: storagetest.Schema(t), UntilSignal: func(ctx context.Context) context.Context { return ctx }})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(append(args, "--storage.path="+path))
	cmd.SetOut(&text)
	cmd.SetErr(&text)
	err = cmd.ExecuteContext(t.Context())
	return text.String(), err
}

// newDatabase makes a database with one event that waits for one subscription.
func newDatabase(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "keyhook.db")
	o := storagetest.Options(t, path)
	o.EncryptionKey = ""
	store, stop := storagetest.OpenWith(t, o)
	p, _ := storagetest.Organization(t, store, "Acme", "growth", "owner")
	storagetest.Subscription(t, store, p, "https://user-7.example.com:8443/hook?token=hidden", "order.*")
	storagetest.Publish(t, store, p, "order.created")
	stop()
	return path
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
}

func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	path := newDatabase(t)
	to := filepath.Join(t.TempDir(), "copy.db")
	out, err := run(t, path, database.NewBackup, to)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, out, "copied to  "+to, "1 delivery (1 pending)", "which is NOT in the copy. Keep keyhook.db.key in another place.")
	if _, err := run(t, path, database.NewBackup, to); err == nil || !strings.Contains(database.WithMend(err).Error(), "replace it with --force") {
		t.Errorf("error %v", err)
	}
	if err := os.Rename(path+".key", path+".elsewhere"); err != nil { // the server has the setting, and this command does not
		t.Fatal(err)
	}
	if out, err = run(t, path, database.NewBackup, to, "--force"); err != nil {
		t.Errorf("error %v, output %s", err, out)
	}
	contains(t, out, "which is NOT in the copy. Keep the setting encryption.key in another place.")
	if err := os.Rename(path+".elsewhere", path+".key"); err != nil {
		t.Fatal(err)
	}
	out, err = run(t, path, database.NewRestore, to)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, out, "restored      "+path, "renamed to keyhook.db.", "(1 pending)",
		"keyhook queue release", "The audit log of the renamed database lists them.")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	out, err = run(t, path, database.NewRestore, to)
	if err != nil || strings.Contains(out, "old database") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
	contains(t, out, "The audit log of the lost database listed them.")
}

func TestBackupThatCannotRemoveAnOlderOne(t *testing.T) {
	t.Parallel()
	path, dir := newDatabase(t), t.TempDir()
	if _, err := run(t, path, database.NewBackup, dir); err != nil {
		t.Fatal(err)
	}
	older, err := filepath.Glob(dir + "/*.db")
	if err != nil || len(older) != 1 {
		t.Fatalf("copies %v, error %v", older, err)
	}
	if out, err := exec.Command("mount", "--bind", older[0], older[0]).CombinedOutput(); err != nil {
		if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
			t.Fatalf("only root on Linux can make a file that cannot be removed: %v: %s", err, out)
		}
		t.Skip("only root on Linux can make a file that cannot be removed") // fails if KEYHOOK_TEST_REQUIRE is set
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", older[0]).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	out, err := run(t, path, database.NewBackup, dir, "--keep", "1")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, out, "warning    the copy is made, but older ones could not be removed: ", filepath.Base(older[0]))
}

func TestRekey(t *testing.T) {
	t.Parallel()
	path := newDatabase(t)
	before, err := os.ReadFile(path + ".key")
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t, path, database.NewRekey)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, out, "Encrypted 1 signing secrets with the key ", "The key is in "+path+".key.", "Older backups need the old key.")
	if after, err := os.ReadFile(path + ".key"); err != nil || string(after) == string(before) {
		t.Errorf("error %v, or the same key", err)
	}
	_, err = run(t, path, database.NewRekey, "--new-key-file", path+".none")
	if err == nil || !strings.HasPrefix(err.Error(), "wrong setting: --new-key-file: cannot read the file: no such file or directory") {
		t.Errorf("error %v", err)
	}
}
