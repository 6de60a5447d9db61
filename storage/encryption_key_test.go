package storage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestTheMendOfAKey takes the key of a database away in several ways. The error must say how to get that key back, and must
// not advise to make another one, which could not open the signing secrets.
func TestTheMendOfAKey(t *testing.T) {
	t.Parallel()
	const garbage = "hunter2"
	other := strings.Repeat("ab", 32)
	for _, tt := range []struct {
		name       string
		keyFile    string // its text; empty: there is none
		aside      bool   // the key is in the file to which a rekey would have moved it
		configured string
		kind       error
		says       []string
	}{
		{"a missing key file", "", false, "", storage.ErrKeyMissing, []string{"restore DB.key with the key ID from your copy", "or set encryption.key"}},
		{"a missing key file, whose key is in another file", "", true, "", storage.ErrKeyMissing, []string{"ID is in DB.key.ID", "cp -p DB.key.ID DB.key"}},
		{"a key file of garbage", garbage, false, "", storage.ErrKey, []string{"line 1 of DB.key", "restore DB.key with the key ID from your copy"}},
		{"a key file of garbage, whose key is in another file", garbage, true, "", storage.ErrKey, []string{"mv DB.key DB.key.wrong && cp -p DB.key.ID DB.key"}},
		{"an empty key file", "\n", false, "", storage.ErrKey, []string{"DB.key is empty", "restore DB.key with the key ID"}},
		{"the key file of another database", other, false, "", storage.ErrKey, []string{"needs the key ID", "restore DB.key with the key ID"}},
		{"the key file of another database, whose key is in another file", other, true, "", storage.ErrKey, []string{"cat DB.key.ID >> DB.key"}},
		{"a setting with another key", "", false, other, storage.ErrKey, []string{"set encryption.key to the key ID, from your copy"}},
		{"a setting with another key, beside the old key file", "", true, other, storage.ErrKey, []string{"set encryption.key to the key ID, which is in DB.key.ID"}},
		{"a setting with another key, beside the key file", "its own", false, other, storage.ErrKey, []string{"unset encryption.key, because DB.key has the key ID"}},
		{"a setting of zeros", "", true, strings.Repeat("0", 64), storage.ErrKey, []string{"set encryption.key to the key ID, which is in DB.key.ID"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "keyhook.db")
			_, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
			stop()
			own := must[[]byte](t)(os.ReadFile(path + ".key"))
			id := keyID(t, path)
			set := func(name, text string) {
				t.Helper()
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tt.aside {
				set(path+".key."+id, string(own))
			}
			switch tt.keyFile {
			case "its own":
			case "":
				if err := os.Remove(path + ".key"); err != nil {
					t.Fatal(err)
				}
			default:
				set(path+".key", tt.keyFile)
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

// keyID returns the id of the key of a closed database.
func keyID(t *testing.T, path string) string {
	t.Helper()
	var sealed string
	query(t, path, &sealed, "SELECT value FROM instance WHERE name = 'canary'")
	_, rest, _ := strings.Cut(sealed, ".")
	id, _, _ := strings.Cut(rest, ".")
	return id
}
