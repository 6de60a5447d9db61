package directory_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

const aDay = 24 * time.Hour

// usage returns the usage of all keys, newest key first and newest day first, without names and ids.
func usage(t *testing.T, store *storage.Store) []access.Usage {
	t.Helper()
	page := must[access.UsagePage](t)(store.KeyUsage(t.Context(), access.AllOrganizations, access.UsageFilter{Until: math.MaxInt32, Limit: 10_000}))
	for i, u := range page.Rows {
		page.Rows[i] = access.Usage{Row: u.Row, Day: u.Day, KeyUse: u.KeyUse}
	}
	return page.Rows
}

// allowedRequests adds up the allowed requests of all keys.
func allowedRequests(t *testing.T, store *storage.Store) (sum int64) {
	t.Helper()
	for _, u := range usage(t, store) {
		sum += u.Allowed
	}
	return sum
}

func today() int64 { return time.Now().Unix() / (24 * 60 * 60) }

// TestTheLastUseOfAKeyIsTheLater writes the uses of two days together, after a time without writes.
func TestTheLastUseOfAKeyIsTheLater(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
		x := platform{storagetest.PlatformOf(t, store)}
		time.Sleep(time.Until(time.Unix((today()+1)*24*60*60, 0)) - time.Minute)
		allow := storagetest.Refuse(t, store, "UPDATE OF last_used_at ON api_keys", "true")
		var keys []access.Principal
		for range 20 {
			keys = append(keys, x.byKey(t, x.Operator, access.EventsRead))
		}
		for range 2 {
			for _, key := range keys {
				x.Directory.Used(key, access.KeyUse{Allowed: 1})
			}
			time.Sleep(90 * time.Minute)
		}
		allow()
		time.Sleep(time.Minute)
		for _, key := range keys {
			found := must[access.Key](t)(x.Directory.Key(t.Context(), x.Operator.Organization.RowID, key.Key.ID))
			if ago := time.Now().UnixMilli() - *found.LastUsedAt; ago > (2 * time.Hour).Milliseconds() {
				t.Errorf("a key was last used %d ms ago", ago)
			}
		}
	})
}

func TestKeyUsage(t *testing.T) {
	t.Parallel()
	one := access.KeyUse{Allowed: 1}

	t.Run("counts each request in its UTC day, of the key that made it", func(t *testing.T) {
		t.Parallel()
		o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
		synctest.Test(t, func(t *testing.T) {
			store, stop := storagetest.OpenWith(t, o)
			x := platform{storagetest.PlatformOf(t, store)}
			old := x.byKey(t, x.Operator, access.EventsRead)
			made, raw := x.rotated(t, x.Operator, old.Key.ID, 2*aDay)
			heir := must[access.Principal](t)(x.Directory.PrincipalByKey(t.Context(), raw.Digest()))
			x.Directory.Used(x.Operator, one) // a token has no counts
			day := today()
			stop() // an open store does upkeep each second
			time.Sleep(time.Until(time.Unix((day+1)*24*60*60, 0)) - time.Second)
			x.Store, _ = storagetest.OpenWith(t, o)
			x.Directory.Used(old, one)
			x.Directory.Used(old, access.KeyUse{Forbidden: 1})
			x.Directory.Used(heir, access.KeyUse{}) // it was used, and is in no count
			time.Sleep(time.Second)
			x.Directory.Used(old, one)
			x.Directory.Used(heir, access.KeyUse{RateLimited: 1})
			x.Directory.Used(heir, one)
			time.Sleep(15 * time.Second)
			if n := len(usage(t, x.Store)); n != 3 {
				t.Errorf("%d of 3 rows are written soon after the first request", n)
			}
			x.Directory.Used(heir, one)
			x.Directory.Used(heir, access.KeyUse{RateLimited: 2, Forbidden: 4})
			time.Sleep(75 * time.Second)
			want := []access.Usage{
				{Row: made.RowID, Day: day + 1, KeyUse: access.KeyUse{Allowed: 2, RateLimited: 3, Forbidden: 4}},
				{Row: old.Key.RowID, Day: day + 1, KeyUse: one},
				{Row: old.Key.RowID, Day: day, KeyUse: access.KeyUse{Allowed: 1, Forbidden: 1}},
			}
			if d := cmp.Diff(want, usage(t, x.Store)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	})

	t.Run("loses and repeats nothing when a write fails, and writes all at a stop", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		synctest.Test(t, func(t *testing.T) {
			store, stop := storagetest.OpenWith(t, storagetest.Options(t, path))
			x := platform{storagetest.PlatformOf(t, store)}
			first, second := x.byKey(t, x.Operator, access.EventsRead), x.byKey(t, x.Operator, access.EventsRead)
			allow := storagetest.Refuse(t, store, "INSERT ON key_days", "true")
			var sum int64
			for i := range 180 {
				if i == 90 {
					allow()
				}
				x.Directory.Used(first, one)
				x.Directory.Used(second, one)
				sum += 2
				time.Sleep(time.Second)
			}
			ended, end := context.WithCancel(t.Context())
			end()
			x.Directory.Used(first, one)
			sum++
			if err := x.Directory.KeepUses(ended, true); err != nil { // nobody would know whether the write happened
				t.Error(err)
			}
			if written := allowedRequests(t, store); written > sum || written < sum-2*60 {
				t.Errorf("%d of %d requests are counted", written, sum)
			}
			stop()
			store, _ = storagetest.OpenWith(t, storagetest.Options(t, path))
			if got := allowedRequests(t, store); got != sum {
				t.Errorf("%d requests are counted after a stop, want %d", got, sum)
			}
		})
	})

	t.Run("of a crash misses at most the last minute, and nothing before it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			x := newPlatform(t)
			p := x.byKey(t, x.Operator, access.EventsRead)
			for second := range int64(300) {
				x.Directory.Used(p, one)
				time.Sleep(time.Second)
				synctest.Wait()
				file := x.Store
				if second%47 == 0 {
					file = copyOf(t, x.Path())
				}
				const most = 50 // on a busy machine, a write is up to ten seconds later
				if got, used := allowedRequests(t, file), second+1; got > used || got < used-most {
					t.Errorf("%d of %d requests, one each second, are counted", got, used)
				}
			}
		})
	})
}

// copyOf opens a copy of a database, as a crash would leave it.
func copyOf(t *testing.T, path string) *storage.Store {
	t.Helper()
	o := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	for _, suffix := range []string{"", "-wal", ".key"} {
		text, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(o.Path+suffix, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	store, stop := storagetest.OpenWith(t, o)
	t.Cleanup(stop)
	return store
}

// TestUsageIsKeptFor400Days also has a clock that was ahead, and one that jumps.
func TestUsageIsKeptFor400Days(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		o := storagetest.Options(t, path)
		store, stop := storagetest.OpenWith(t, o)
		x := platform{storagetest.PlatformOf(t, store)}
		p := x.byKey(t, x.Operator, access.EventsRead)
		begin := today()
		// use makes a request and closes the store for a while, because an open one does upkeep each second.
		use := func(d time.Duration) {
			x.Directory.Used(p, access.KeyUse{Allowed: 1})
			stop()
			time.Sleep(d)
			x.Store, stop = storagetest.OpenWith(t, o)
		}
		use(aDay)
		use(399 * aDay)
		storagetest.Exec(t, x.Store, "INSERT INTO key_days VALUES (?, ?, 7, 0, 0)", p.Key.RowID, begin+9000) // the clock was ahead
		days := func() (days []int64) {
			time.Sleep(2 * time.Minute)
			for _, u := range usage(t, x.Store) {
				days = append(days, u.Day-begin)
			}
			return days
		}
		storagetest.Exec(t, x.Store, "INSERT OR REPLACE INTO organization_days VALUES (?1, ?2, 7, 0, 0, 0), (?1, ?2 + 1, 7, 0, 0, 0)", p.Home.RowID, begin)
		organizationDays := func() int {
			f := access.UsageFilter{Since: begin, Until: begin + 2, Limit: 10}
			return len(must[access.UsagePage](t)(x.OrganizationUsage(t.Context(), p.Home.RowID, f)).Rows)
		}
		use(0)
		if d := cmp.Diff([]int64{9000, 400, 1, 0}, days()); d != "" || organizationDays() != 2 {
			t.Errorf("400 days later, and %d days of the organization (-want +got):\n%s", organizationDays(), d)
		}
		use(aDay)
		if d := cmp.Diff([]int64{9000, 400, 1, 0}, days()); d != "" {
			t.Errorf("while the clock is doubted (-want +got):\n%s", d)
		}
		if err := x.AcceptClock(t.Context(), x.By); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]int64{9000, 400, 1}, days()); d != "" || organizationDays() != 1 {
			t.Errorf("401 days later, and %d days of the organization (-want +got):\n%s", organizationDays(), d)
		}
		stop()
	})
}
