package directory_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestLastUse(t *testing.T) {
	t.Parallel()
	// lastUse reads it of the key, and of the token, that p came with.
	lastUse := func(t *testing.T, x platform, p access.Principal) int64 {
		t.Helper()
		var at *int64
		if p.Key != nil {
			at = must[access.Key](t)(x.Directory.Key(t.Context(), p.Home.RowID, p.Key.ID)).LastUsedAt
		} else {
			at = must[access.AccessToken](t)(x.Directory.Token(t.Context(), p.User.ID, p.Token.ID)).LastUsedAt
		}
		if at == nil {
			return 0
		}
		return *at
	}
	for _, byKey := range []bool{true, false} {
		name := "of a token"
		if byKey {
			name = "of a key"
		}
		t.Run(name+" is written soon after the first, then once a minute, and never lost", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := newPlatform(t)
				p := x.Operator
				if byKey {
					p = x.byKey(t, p, access.EventsRead)
				}
				if at := lastUse(t, x, p); at != 0 {
					t.Fatalf("used at %d before it was", at)
				}
				first := time.Now().UnixMilli()
				x.Directory.Used(p, access.KeyUse{Allowed: 1})
				time.Sleep(15 * time.Second)
				if at := lastUse(t, x, p); at != first {
					t.Fatalf("used at %d, want %d", at, first)
				}
				if err := x.Directory.MoveUses(t.Context(), 400*24*time.Hour); err != nil { // the clock was ahead
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				first = time.Now().UnixMilli()
				x.Directory.Used(p, access.KeyUse{Allowed: 1})
				time.Sleep(15 * time.Second)
				if at := lastUse(t, x, p); at != first {
					t.Fatalf("used at %d, want %d, after a clock that was ahead", at, first)
				}
				written := map[int64]bool{}
				for range 300 {
					time.Sleep(time.Second)
					x.Directory.Used(p, access.KeyUse{Allowed: 1})
					written[lastUse(t, x, p)] = true
				}
				if n := len(written); n < 6 || n > 7 {
					t.Errorf("written %d times in five minutes of use", n)
				}
				last := time.Now().UnixMilli()
				time.Sleep(80 * time.Second)
				if at := lastUse(t, x, p); at != last {
					t.Errorf("used at %d, want %d", at, last)
				}
			})
		})
	}
	t.Run("of many credentials at once is written of each", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newPlatform(t)
			var wg sync.WaitGroup
			used := make([]access.Principal, 1200)
			for i := range used {
				wg.Go(func() {
					_, credential := storagetest.Key(t, x.Store, x.Operator, access.EventsRead)
					p, err := x.Directory.PrincipalByKey(t.Context(), credential.Digest())
					if err != nil {
						t.Error(err)
					}
					used[i] = p
					x.Directory.Used(p, access.KeyUse{Allowed: 1})
				})
			}
			wg.Wait()
			time.Sleep(15 * time.Second)
			for _, p := range used {
				if lastUse(t, x, p) == 0 {
					t.Fatalf("the use of %s is not written", p.Key.ID)
				}
			}
		})
	})
	t.Run("of one without a credential is nothing", func(t *testing.T) {
		t.Parallel()
		storagetest.Open(t).Directory.Used(access.Principal{}, access.KeyUse{Allowed: 1})
	})
}
