package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// rekeys is how often TestKilledRekey kills a command.
var rekeys = map[bool]int{false: 20, true: 3}[underRace]

// TestKilledRekey kills the change of the encryption key again and again, and checks each time that every secret is there.
func TestKilledRekey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := storagetest.Options(t, filepath.Join(dir, "keyhook.db"))
	secrets := manySecrets(t, o)
	began := time.Now()
	succeed(t, dir, []string{"rekey"}, "Encrypted 1600 signing secrets")
	whole := time.Since(began)
	midway := 0
	for range rekeys {
		cmd := keyhook(t, dir, "rekey")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		sleep(t.Context(), whole/4+rand.N(whole))
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()         // the key file tells that, too
		keys, err := os.ReadFile(o.Path + ".key")
		if err != nil {
			t.Fatal(err)
		}
		if len(strings.Fields(string(keys))) > 1 {
			midway++
		}
		store, stop := storagetest.OpenWith(t, o)
		for row, secret := range secrets {
			if at, err := store.Queue.Target(t.Context(), row); err != nil || at.Secret.Reveal() != secret {
				t.Fatalf("subscription %d: %q, error %v", row, at.Unusable, err)
			}
		}
		stop()
	}
	t.Logf("of %d changes, %d were killed midway", rekeys, midway)

	p := start(t, dir) // whatever state the last one left
	if code, said := finish(t, keyhook(t, dir, "rekey")); code == 0 || !strings.Contains(said, strconv.Itoa(p.cmd.Process.Pid)) || strings.Count(said, "\n") != 1 {
		t.Errorf("beside a server: exit code %d: %s", code, said)
	}
	p.end(syscall.SIGTERM)
	succeed(t, dir, []string{"rekey"})
	if left, _ := filepath.Glob(o.Path + ".key*.part"); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

// manySecrets makes a database with 1,600 subscriptions, and returns their signing secrets by row.
func manySecrets(t *testing.T, o storage.Options) map[int64]string {
	t.Helper()
	store, stop := storagetest.OpenWith(t, o)
	defer stop()
	operator := storagetest.Operator(t, store)
	var mu sync.Mutex
	secrets := map[int64]string{}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 100 {
				sub, secret := storagetest.Subscription(t, store, operator, "https://example.com/", "order.*")
				mu.Lock()
				secrets[sub.RowID] = secret.Reveal()
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return secrets
}
