package storage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestTheMendOfAKey takes the key of a database away in several ways. The error must say how to get that key back, and must
// not advise to make another one, which could not open the signing secrets.
func TestTheMendOfAKey(t *testing.T) {
	t.Parallel()
	const garbage, ours = "hunter2", "ours"
	other := strings.Repeat("ab", 32)
	for _, tt := range []struct {
		name       string
		keyFile    string // its text; empty: there is none; ours: it stays
		configured string
		kind       error
		says       []string
	}{
		{"a missing key file", "", "", storage.ErrKeyMissing, []string{"restore DB.key with the key that its signing secrets are encrypted with from your copy", "or set encryption.key"}},
		{"a key file of garbage", garbage, "", storage.ErrKey, []string{"line 1 of DB.key", "restore DB.key with the key that"}},
		{"an empty key file", "\n", "", storage.ErrKey, []string{"DB.key is empty", "restore DB.key with the key that"}},
		{"the key file of another database", other, "", storage.ErrKey, []string{"needs the key ID", "append the key ID from your copy to DB.key"}},
		{"a setting with another key", "", other, storage.ErrKey, []string{"needs the key ID", "set encryption.key to the key ID, from your copy"}},
		{"a setting with another key than the key file", ours, other, storage.ErrKey, []string{"needs the key ID", "remove encryption.key, because DB.key has the key ID"}},
		{"a setting of zeros", "", strings.Repeat("0", 64), storage.ErrKey, []string{"set encryption.key to the key that"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "keyhook.db")
			_, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
			stop()
			id := keyID(t, path)
			if tt.keyFile != ours {
				if err := os.Remove(path + ".key"); err != nil {
					t.Fatal(err)
				}
			}
			if tt.keyFile != "" && tt.keyFile != ours {
				if err := os.WriteFile(path+".key", []byte(tt.keyFile), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			o := storagetest.Options(t, path)
			o.EncryptionKey = tt.configured
			for i, part := range tt.says {
				tt.says[i] = strings.NewReplacer("DB", path, "ID", id).Replace(part)
			}
			refused(t, o, tt.kind, tt.says...)
			_, err := storage.Examine(t.Context(), o) // as doctor does
			for _, part := range tt.says {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("Examine does not say %q: %v", part, err)
				}
			}
			if strings.Contains(err.Error(), "make one") || strings.Contains(err.Error(), garbage) {
				t.Errorf("it advises to make a key, or shows the file: %v", err)
			}
		})
	}
}

// TestKeysWithoutALineBreak appends a key with cat to a key file that an editor has left without a line break at its end.
func TestKeysWithoutALineBreak(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	o := storagetest.Options(t, path)
	_, stop := storagetest.OpenWith(t, o)
	stop()
	key := strings.TrimSpace(string(must[[]byte](t)(os.ReadFile(path + ".key"))))
	another := seal.NewKey().Reveal()
	for _, text := range []string{key + another + "\n", another + key} {
		if err := os.WriteFile(path+".key", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		must[*storage.Store](t)(storage.Open(t.Context(), o)).Close()
	}
}

// TestABackupWithoutItsKey replaces the key file of a running server. The process has the only copy of the key then.
func TestABackupWithoutItsKey(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	if r := must[backup.Report](t)(x.CreateBackup(t.Context(), x.Actor(), "", 0)); r.Warning != "" {
		t.Errorf("warning %q", r.Warning)
	}
	for _, text := range []string{seal.NewKey().Reveal(), "", "x"} {
		if err := os.WriteFile(x.Path()+".key", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := must[backup.Report](t)(x.CreateBackup(t.Context(), x.Actor(), "", 0))
		if want := x.Path() + ".key does not have the key " + r.KeyID; !strings.Contains(r.Warning, want) {
			t.Errorf("key file %q: warning %q", text, r.Warning)
		}
		if r, err := storage.Backup(t.Context(), storage.BackupOptions{Path: x.Path(), KeySet: true}); err != nil || r.Warning != "" {
			t.Errorf("with the key as a setting: %q, error %v", r.Warning, err)
		}
	}
}

// keyID returns the id of the key of a closed database.
func keyID(t *testing.T, path string) string {
	t.Helper()
	var sealed string
	query(t, path, &sealed, "SELECT value FROM instance WHERE name = 'canary'")
	_, rest, _ := strings.Cut(sealed, ".")
	id, _, _ := strings.Cut(rest, ".")
	return id
}
