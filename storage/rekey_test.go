package storage_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/redact"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Encryption keys of an operator.
var (
	keyA = strings.Repeat("a1", 32)
	keyB = strings.Repeat("b2", 32)
	keyC = strings.Repeat("c3", 32)
)

// sealedFile is a closed file, with its secrets.
type sealedFile struct {
	o       storage.Options
	secrets map[int64][3]string // by row id: the secret, the previous one during an overlap, and the value of a header
}

// newSealed creates a file with n subscriptions. Every third one is in an overlap, every fifth has a header, and every seventh is
// deleted, with its secrets.
func newSealed(t *testing.T, n int, encryptionKey string) sealedFile {
	t.Helper()
	x := sealedFile{storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db")), map[int64][3]string{}}
	x.o.EncryptionKey = encryptionKey
	store, stop := storagetest.OpenWith(t, x.o)
	operator := storagetest.Operator(t, store)
	for i := range n {
		sub, secret := storagetest.Subscription(t, store, operator, "https://example.com/", "order.*")
		x.secrets[sub.RowID] = [3]string{secret.Reveal()}
		if i%3 == 0 {
			_, next, err := store.Subscriptions.RotateSecret(t.Context(), operator.Actor("", ""), 1, sub.ID, webhook.Rotation{Overlap: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			x.secrets[sub.RowID] = [3]string{next.Reveal(), secret.Reveal(), ""}
		}
		if kept := x.secrets[sub.RowID]; i%5 == 0 && i%7 > 0 {
			kept[2] = "Bearer " + sub.ID
			must[webhook.Subscription](t)(store.Subscriptions.UpdateSubscription(t.Context(), operator.Actor("", ""), 1, sub.ID,
				webhook.SubscriptionChange{Headers: &[]webhook.Header{{Name: "Authorization", Value: redact.New(kept[2])}}}))
			x.secrets[sub.RowID] = kept
		}
		if i%7 == 0 {
			if err := store.Subscriptions.DeleteSubscription(t.Context(), operator.Actor("", ""), 1, sub.ID); err != nil {
				t.Fatal(err)
			}
			x.secrets[sub.RowID] = [3]string{}
		}
	}
	stop()
	return x
}

// headerValue returns the value of the first header of a target; empty if there is none.
func headerValue(at webhook.Target) string {
	if len(at.Headers) == 0 {
		return ""
	}
	return at.Headers[0].Value.Reveal()
}

// with returns the file with another setting of encryption.key.
func (x sealedFile) with(encryptionKey string) sealedFile {
	x.o.EncryptionKey = encryptionKey
	return x
}

// requireSameSecrets opens the file and fails the test unless each secret is unchanged.
func (x sealedFile) requireSameSecrets(t *testing.T) {
	t.Helper()
	store, stop := storagetest.OpenWith(t, x.o)
	defer stop()
	got := map[int64][3]string{}
	for row := range x.secrets {
		at := must[webhook.Target](t)(store.Queue.Target(t.Context(), row))
		if at.Unusable != "" {
			t.Errorf("subscription %d: %s", row, at.Unusable)
		}
		got[row] = [3]string{at.Secret.Reveal(), at.Previous.Reveal(), headerValue(at)}
	}
	if !maps.Equal(got, x.secrets) {
		t.Error("the secrets are not what they were")
	}
}

// keys returns the lines of the key file, or none.
func (x sealedFile) keys(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(x.o.Path + ".key")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// beside lists the files beside the database by their suffixes, without the lock.
func (x sealedFile) beside(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(x.o.Path + ".*")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range found {
		if name = strings.TrimPrefix(name, x.o.Path); name != ".lock" {
			names = append(names, name)
		}
	}
	return names
}

func (x sealedFile) rekey(ctx context.Context, oldKey, newKey string) (storage.Rekeyed, error) {
	return storage.Rekey(ctx, x.o, storage.KeyChange{Old: oldKey, New: newKey})
}

// query reads one value from a closed file.
func query(t *testing.T, path string, value any, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(statement).Scan(value); err != nil {
		t.Fatal(err)
	}
}

// endingContext is a context that ends after n calls of Err, like a signal between two batches.
type endingContext struct {
	context.Context
	after *int
}

func (c endingContext) Err() error {
	caller, _, _, _ := runtime.Caller(1)
	if !strings.HasSuffix(runtime.FuncForPC(caller).Name(), ".(*Change).sealSecrets.func2") {
		return nil
	}
	if *c.after--; *c.after < 0 {
		return context.Canceled
	}
	return nil
}

func TestRekey(t *testing.T) {
	t.Parallel()

	t.Run("Rekey creates a key in the key file and keeps the old one for older backups", func(t *testing.T) {
		t.Parallel()
		x := newSealed(t, 250, "")
		before := x.keys(t)
		backup := filepath.Join(t.TempDir(), "backup.db")
		alter(t, x.o.Path, "VACUUM INTO '"+backup+"'")
		done := must[storage.Rekeyed](t)(x.rekey(t.Context(), "", ""))
		x.requireSameSecrets(t)
		after := x.keys(t)
		if len(after) != 1 || after[0] == before[0] || done.KeyFile != x.o.Path+".key" || done.Secrets != 250-36+84-12 {
			t.Errorf("%d keys in the file, done %+v", len(after), done)
		}
		want := []string{".key", ".key." + done.PreviousKeyID}
		if d := cmp.Diff(want, x.beside(t)); d != "" || done.PreviousKeyID == "" || len(done.OldKeys) != 1 {
			t.Errorf("files (-want +got):\n%s%+v", d, done)
		}
		for _, name := range want {
			if info, err := os.Stat(x.o.Path + name); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, error %v", name, info.Mode(), err)
			}
		}
		old := sealedFile{x.o, x.secrets}
		old.o.Path = backup
		if err := os.Rename(done.OldKeys[0], backup+".key"); err != nil {
			t.Fatal(err)
		}
		old.requireSameSecrets(t)
		refused(t, x.with(before[0]).o, storage.ErrKey, done.KeyID, done.PreviousKeyID, "encryption.key")
		again := must[storage.Rekeyed](t)(x.rekey(t.Context(), "", "")) // then rekey to a third key
		if again.PreviousKeyID != done.KeyID || again.KeyID == done.KeyID {
			t.Errorf("again %+v", again)
		}
		x.requireSameSecrets(t)
	})

	for name, tt := range map[string]struct {
		made, configured, old, new string
		then                       string // the later encryption.key
		files                      []string
	}{
		"from the settings to a file of the operator's":      {keyA, keyA, "", keyB, keyB, nil},
		"from a file of the operator's to the settings":      {keyA, keyB, keyA, "", keyB, nil},
		"from file to file, without settings":                {keyA, "", keyA, keyB, keyB, nil},
		"from file to file, whatever the settings":           {keyA, keyC, keyA, keyB, keyB, nil},
		"from a file of the operator's to the key file":      {keyA, "", keyA, "", "", []string{".key"}},
		"from the key file to a file of the operator's":      {"", "", "", keyB, keyB, []string{".key.*"}},
		"from the key file to the settings, without a flag":  {"", keyB, "", "", keyB, []string{".key.*"}},
		"from the key file to itself":                        {"", "", "", "", "", []string{".key", ".key.*"}},
		"from the settings, with a flag that repeats them":   {keyA, keyA, keyA, keyB, keyB, nil},
		"from one of two that are named, and one that fails": {keyA, keyA, keyC, keyB, keyB, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newSealed(t, 4, tt.made)
			done := must[storage.Rekeyed](t)(x.with(tt.configured).rekey(t.Context(), tt.old, tt.new))
			then := x.with(tt.then)
			then.requireSameSecrets(t)
			if done.Secrets != 4 || (done.KeyFile != "") != (tt.then == "") {
				t.Errorf("done %+v", done)
			}
			files := x.beside(t)
			for i, name := range files {
				if strings.HasPrefix(name, ".key.") {
					files[i] = ".key.*"
				}
			}
			if d := cmp.Diff(tt.files, files); d != "" {
				t.Errorf("files (-want +got):\n%s", d)
			}
			if tt.new == "" && tt.configured == "" {
				return // it creates a new key each time
			}
			again := must[storage.Rekeyed](t)(then.rekey(t.Context(), tt.old, tt.new))
			if again.PreviousKeyID != "" || again.Secrets != 0 || again.KeyID != done.KeyID {
				t.Errorf("a second time: %+v", again)
			}
		})
	}
}

// TestRekeyWithAnUnreadableSecret seals the headers of a subscription whose secret no key opens.
func TestRekeyWithAnUnreadableSecret(t *testing.T) {
	t.Parallel()
	x := newSealed(t, 6, keyA) // the last one has a header
	alter(t, x.o.Path, "UPDATE subscriptions SET secret = x'00' WHERE id = (SELECT subscription_id FROM subscription_headers)")
	done := must[storage.Rekeyed](t)(x.rekey(t.Context(), keyA, keyB))
	if done.Headers != 1 {
		t.Fatalf("done %+v", done)
	}
	store, _ := storagetest.OpenWith(t, x.with(keyB).o)
	operator := storagetest.Operator(t, store)
	var id string
	query(t, x.o.Path, &id, "SELECT public_id FROM subscriptions WHERE secret = x'00'")
	sub, _, err := store.Subscriptions.RotateSecret(t.Context(), operator.Actor("", ""), 1, id, webhook.Rotation{})
	if err != nil {
		t.Fatal(err)
	}
	if at := must[webhook.Target](t)(store.Queue.Target(t.Context(), sub.RowID)); at.Unusable != "" || headerValue(at) != "Bearer "+sub.ID {
		t.Errorf("after the rotation: %q, header %q", at.Unusable, headerValue(at))
	}
}

func TestInterruptedRekey(t *testing.T) {
	t.Parallel()

	t.Run("an interrupted Rekey changes nothing, and the database opens with the key file as it is", func(t *testing.T) {
		t.Parallel()
		x := newSealed(t, 2500, "")
		first := x.keys(t)[0]
		var second string
		for n := range 4 { // before each of the batches, and before the commit
			_, err := x.rekey(endingContext{t.Context(), new(n)}, "", "")
			if err == nil || !strings.Contains(err.Error(), "nothing has changed") {
				t.Fatalf("cut %d: error %v", n, err)
			}
			keys := x.keys(t)
			if n == 0 {
				second = keys[0]
			}
			if d := cmp.Diff([]string{second, first}, keys); d != "" {
				t.Fatalf("cut %d: the key file (-want +got):\n%s", n, d)
			}
			x.with(first).requireSameSecrets(t)
			refused(t, x.with(second).o, storage.ErrKey, "needs the key")
			store, stop := storagetest.OpenWith(t, x.o) // a server runs in between and seals with the old key
			sub, secret := storagetest.Subscription(t, store, storagetest.Operator(t, store), "https://example.com/")
			x.secrets[sub.RowID] = [3]string{secret.Reveal()}
			stop()
		}
		x.with(first).requireSameSecrets(t)
		done := must[storage.Rekeyed](t)(x.rekey(t.Context(), "", ""))
		if d := cmp.Diff([]string{second}, x.keys(t)); d != "" || done.Secrets != 2500-358+834-120+4 {
			t.Errorf("done %+v, the key file (-want +got):\n%s", done, d)
		}
		x.requireSameSecrets(t)
	})

	t.Run("an older backup can be restored with the old key in the key file", func(t *testing.T) {
		t.Parallel()
		x := newSealed(t, 150, "")
		before := filepath.Join(t.TempDir(), "before.db")
		must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: x.o.Path, To: before}))
		done := must[storage.Rekeyed](t)(x.rekey(t.Context(), "", ""))
		_, err := storage.Restore(t.Context(), x.o, before) // with only the new key
		if add := "cat " + done.OldKeys[0] + " >> " + x.o.Path + ".key"; !errors.Is(err, storage.ErrKey) || !strings.HasSuffix(err.Error(), add) {
			t.Fatal(err)
		}
		x.requireSameSecrets(t)
		both := strings.Join(append(x.keys(t), strings.TrimSpace(string(must[[]byte](t)(os.ReadFile(done.OldKeys[0]))))), "\n")
		if err := os.WriteFile(x.o.Path+".key", []byte(both), 0o600); err != nil { // as the document says
			t.Fatal(err)
		}
		restored := must[backup.Restored](t)(storage.Restore(t.Context(), x.o, before))
		if restored.KeyID != done.PreviousKeyID {
			t.Errorf("restored %+v", restored)
		}
		x.requireSameSecrets(t)
		again := must[storage.Rekeyed](t)(x.rekey(t.Context(), "", ""))
		if again.KeyID != done.KeyID || again.PreviousKeyID != done.PreviousKeyID || len(x.keys(t)) != 1 {
			t.Errorf("again %+v", again)
		}
		x.requireSameSecrets(t)
	})

	t.Run("an older backup names its key if encryption.key is the new key", func(t *testing.T) {
		t.Parallel()
		x := newSealed(t, 1, "")
		before := filepath.Join(t.TempDir(), "before.db")
		must[backup.Report](t)(storage.Backup(t.Context(), storage.BackupOptions{Path: x.o.Path, To: before}))
		done := must[storage.Rekeyed](t)(x.rekey(t.Context(), "", keyB))
		_, err := storage.Restore(t.Context(), x.with(keyB).o, before)
		if !errors.Is(err, storage.ErrKey) || !strings.Contains(err.Error(), "set encryption.key to the key "+done.PreviousKeyID) {
			t.Fatal(err)
		}
		old := strings.TrimSpace(string(must[[]byte](t)(os.ReadFile(done.OldKeys[0]))))
		must[backup.Restored](t)(storage.Restore(t.Context(), x.with(old).o, before)) // do what the error says
	})

	t.Run("Rekey finishes when only the key file was left to change", func(t *testing.T) {
		t.Parallel()
		x := newSealed(t, 2, "")
		first := x.keys(t)[0]
		done := must[storage.Rekeyed](t)(x.rekey(t.Context(), "", ""))
		second := x.keys(t)[0]
		if err := os.WriteFile(x.o.Path+".key", []byte(second+"\n"+first+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		x.requireSameSecrets(t)
		again := must[storage.Rekeyed](t)(x.rekey(t.Context(), "", ""))
		if again.KeyID != done.KeyID || again.Secrets != 0 || !slices.Equal(x.keys(t), []string{second}) || !slices.Equal(again.OldKeys, done.OldKeys) {
			t.Errorf("%+v, %d keys", again, len(x.keys(t)))
		}
	})

	t.Run("Rekey leaves unfinished attempts to the next owner, because it does not know the policy", func(t *testing.T) {
		t.Parallel()
		x := newSealed(t, 2, "") // the first of them is deleted
		store, stop := storagetest.OpenWith(t, x.o)
		storagetest.Publish(t, store, storagetest.Operator(t, store), "order.created")
		at := must[webhook.Target](t)(store.Queue.Target(t.Context(), 2))
		job := must[[]webhook.Job](t)(store.Queue.PendingJobs(t.Context(), 2, 0, 10, nil))[0]
		must[[]int64](t)(store.Queue.Begin(t.Context(), []webhook.Start{{
			Delivery: job.Delivery, Subscription: 2, Epoch: at.Epoch, Number: 1, Trigger: job.Trigger(),
		}}))
		stop()
		outcome := func() webhook.Outcome {
			store, err := storage.Open(t.Context(), x.o)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			return must[[]webhook.Attempt](t)(store.Attempts(t.Context(), 1, at.ID, webhook.AttemptFilter{Limit: 1}))[0].Outcome
		}
		must[storage.Rekeyed](t)(x.rekey(t.Context(), "", ""))
		var sending int
		query(t, x.o.Path, &sending, "SELECT count(*) FROM deliveries WHERE state >= 4")
		if sending != 1 || outcome() != webhook.Interrupted {
			t.Errorf("%d attempts were still sending after the change", sending)
		}
	})
}

func TestRefusedRekey(t *testing.T) {
	t.Parallel()

	t.Run("Rekey does not change secrets that no key opens; their subscriptions say so", func(t *testing.T) {
		t.Parallel()
		x := newSealed(t, 9, "")
		alter(t, x.o.Path, `
			UPDATE subscriptions SET secret = CAST(substr(secret, 1, 20) || 'AAAA' || substr(secret, 25) AS BLOB) WHERE id = 2;
			UPDATE subscriptions SET secret = CAST('v1.01234567.AAAA' AS BLOB) WHERE id = 3;
			UPDATE subscriptions SET secret = x'' WHERE id = 5;
			UPDATE subscriptions SET secret = x'' WHERE id = 8`) // a deleted subscription
		must[storage.Rekeyed](t)(x.rekey(t.Context(), "", ""))
		store, stop := storagetest.OpenWith(t, x.o)
		for _, row := range []int64{2, 3, 5} {
			if at := must[webhook.Target](t)(store.Queue.Target(t.Context(), row)); !strings.Contains(at.Unusable, "rotate the secret") {
				t.Errorf("subscription %d says %q", row, at.Unusable)
			}
		}
		stop()
		for _, row := range []int64{2, 3, 5, 8} {
			delete(x.secrets, row)
		}
		x.requireSameSecrets(t)
	})

	t.Run("a refused Rekey changes nothing", func(t *testing.T) {
		t.Parallel()
		x := newSealed(t, 3, keyA)
		refuse := func(name string, x sealedFile, oldKey, newKey string, parts ...string) {
			t.Helper()
			_, err := x.rekey(t.Context(), oldKey, newKey)
			for _, part := range parts {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %v, which does not name %q", name, err, part)
				}
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s shows the key: %v", name, err)
			}
		}
		refuse("no key", x.with(""), "", "", x.o.Path+".key", "is gone")
		refuse("a wrong key", x.with(keyC), "", keyB, "needs the key")
		refuse("no present key", x.with("hunter2"), "", keyB, "encryption.key", "from your copy", "a new key cannot open")
		refuse("no old key", x, "hunter2", keyB, "the old key", "a new key cannot open")
		refuse("none at all", x, "", "hunter2", "the new key", "openssl")
		missing := x
		missing.o.Path = filepath.Join(t.TempDir(), "other.db")
		refuse("no file", missing, "", keyB, "no database", missing.o.Path, "storage.path")
		if left := missing.beside(t); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
		for name, text := range map[string]string{"empty": "", "cut off": keyA + "\n" + keyB[:20], "of another sort": "hunter2\n"} {
			if err := os.WriteFile(x.o.Path+".key", []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			refuse("a key file "+name, x.with(""), "", "", x.o.Path+".key", "from your copy")
			refused(t, x.with("").o, storage.ErrKey, x.o.Path+".key", "from your copy")
		}
		if err := os.Remove(x.o.Path + ".key"); err != nil {
			t.Fatal(err)
		}
		_, stop := storagetest.OpenWith(t, x.o)
		refuse("a running server", x, "", keyB, fmt.Sprint(os.Getpid()), "stop that process first")
		stop()
		x.requireSameSecrets(t)
	})
}
