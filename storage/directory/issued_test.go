package directory_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestExpiryIsAnnounced lets credentials end, with notices of three, two and one hours.
func TestExpiryIsAnnounced(t *testing.T) {
	t.Parallel()
	options := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	options.ExpiryNotice = []time.Duration{time.Hour, 3 * time.Hour, 2 * time.Hour}
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, options)
		owner, _ := storagetest.Organization(t, store, "acme", "growth", access.RoleOwner)
		by := owner.Actor("", "")
		began := time.Now()
		create := func(name string, life time.Duration) access.Key {
			end := began.Add(life).UnixMilli()
			return must[access.Key](t)(store.Directory.CreateKey(t.Context(), owner, by, access.NewKey{
				Credential: access.Mint("svc"), Name: name, Scope: access.NewScope(access.EventsRead), ExpiresAt: &end,
			}))
		}
		create("long", 5*time.Hour)
		create("short", 150*time.Minute) // the first notice had begun when it was created
		create("endless", 20_000*time.Hour)
		revoked, rotated := create("revoked", 4*time.Hour), create("rotated", 4*time.Hour)
		if err := store.Directory.RevokeKey(t.Context(), by, owner.Organization.RowID, revoked.ID); err != nil {
			t.Fatal(err)
		}
		must[access.RotatedKey](t)(store.Directory.RotateKey(t.Context(), owner, by, rotated.ID, access.Mint("svc"), 210*time.Minute))
		end := began.Add(4 * time.Hour).UnixMilli()
		must[access.AccessToken](t)(store.Directory.CreateToken(t.Context(), storagetest.Operator(t, store).Actor("", ""),
			owner.User.ID, owner.Organization.ID, access.Mint(access.TokenPrefix), "laptop", &end))
		if _, err := store.Directory.Key(t.Context(), owner.Organization.RowID, rotated.ID); err != nil {
			t.Fatal(err)
		}

		told := func(store *storage.Store) (list []string) {
			page, err := store.History.AuditPage(t.Context(), owner.Organization.RowID, access.AuditFilter{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Rows {
				if e.Type == access.AccessTokenExpiring && !strings.Contains(e.Details, `"user_id":"`+owner.User.ID+`"`) {
					t.Errorf("an erasure of the user would not find %s", e.Details)
				}
				if e.Type == access.KeyExpiring || e.Type == access.AccessTokenExpiring {
					at := time.UnixMilli(e.At).Sub(began).Round(30 * time.Minute)
					var details struct{ Name string }
					if err := json.Unmarshal([]byte(e.Details), &details); err != nil {
						t.Fatal(err)
					}
					list = append([]string{at.String() + " " + e.Type + " " + details.Name}, list...)
				}
			}
			return list
		}
		time.Sleep(100 * time.Minute)
		const token, key = access.AccessTokenExpiring, access.KeyExpiring
		want := []string{"30m0s " + key + " short", "1h0m0s " + key + " rotated", "1h0m0s " + token + " laptop", "1h30m0s " + key + " short"}
		if d := cmp.Diff(want, told(store)); d != "" {
			t.Errorf("after 100 minutes (-want +got):\n%s", d)
		}
		stop()
		time.Sleep(155 * time.Minute) // two notices of the long key begin, and the short key ends
		store, stop = storagetest.OpenWith(t, options)
		time.Sleep(65 * time.Minute)
		stop()
		store, stop = storagetest.OpenWith(t, options)
		defer stop()
		time.Sleep(time.Hour)
		want = append(want, "4h30m0s "+key+" long")
		if d := cmp.Diff(want, told(store)); d != "" {
			t.Errorf("after restarts (-want +got):\n%s", d)
		}
	})
}

// TestEdgesOfANotice announces a millisecond before a notice begins, when it begins, and when a key ends.
func TestEdgesOfANotice(t *testing.T) {
	t.Parallel()
	options := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	options.ExpiryNotice = nil // the test announces
	synctest.Test(t, func(t *testing.T) {
		store, stop := storagetest.OpenWith(t, options)
		defer stop()
		owner, _ := storagetest.Organization(t, store, "acme", "growth", access.RoleOwner)
		began := time.Now()
		const notice = 30 * 24 * time.Hour
		credential := access.Mint("svc") // of the key that is used
		for name, life := range map[string]time.Duration{"begun": notice, "later": notice + time.Millisecond, "ended": 2 * notice} {
			end := began.Add(life).UnixMilli()
			k := access.NewKey{Credential: access.Mint("svc"), Name: name, Scope: access.NewScope(access.EventsRead), ExpiresAt: &end}
			if name == "later" {
				k.Credential = credential
			}
			must[access.Key](t)(store.Directory.CreateKey(t.Context(), owner, owner.Actor("", ""), k))
		}
		store.Directory.Used(must[access.Principal](t)(store.Directory.PrincipalByKey(t.Context(), credential.Digest())), access.KeyUse{Allowed: 1})
		if err := store.Directory.KeepUses(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		used := "\"last_used_at\":\"" + began.UTC().Format("2006-01-02T15:04:05.000Z") + `"`
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 0}, {time.Millisecond, 1}, {2 * notice, 1}, {2*notice - time.Millisecond, 2}} {
			if err := store.Directory.AnnounceExpiry(t.Context(), began.Add(step.after).UnixMilli(), []time.Duration{notice}); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, e := range must[access.Page[access.AuditEvent]](t)(store.History.AuditPage(t.Context(), owner.Organization.RowID, access.AuditFilter{Limit: 100})).Rows {
				if e.Type == access.KeyExpiring {
					n++
					if isUsed := strings.Contains(e.Details, `"name":"later"`); strings.Contains(e.Details, used) != isUsed {
						t.Errorf("the last use is wrong in %s", e.Details)
					}
				}
			}
			if n != step.want {
				t.Errorf("%d notices after %s, want %d", n, step.after, step.want)
			}
		}
	})
}

// TestAClockThatWasAheadUsesUpNoNotice announces by a clock that is ahead, and then by one that is right.
func TestAClockThatWasAheadUsesUpNoNotice(t *testing.T) {
	t.Parallel()
	options := storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db"))
	options.ExpiryNotice = nil // the test announces
	store, stop := storagetest.OpenWith(t, options)
	defer stop()
	owner, _ := storagetest.Organization(t, store, "acme", "growth", access.RoleOwner)
	const day = 24 * time.Hour
	began := time.Now()
	end := began.Add(60 * day).UnixMilli()
	must[access.Key](t)(store.Directory.CreateKey(t.Context(), owner, owner.Actor("", ""), access.NewKey{
		Credential: access.Mint("svc"), Name: "key", Scope: access.NewScope(access.EventsRead), ExpiresAt: &end,
	}))
	for i, after := range []time.Duration{59*day + time.Hour, 31 * day, 54 * day, 59*day + 2*time.Hour} {
		for range 2 {
			if err := store.Directory.AnnounceExpiry(t.Context(), began.Add(after).UnixMilli(), []time.Duration{30 * day, 7 * day, day}); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for _, e := range must[access.Page[access.AuditEvent]](t)(store.History.AuditPage(t.Context(), owner.Organization.RowID, access.AuditFilter{Limit: 100})).Rows {
			if e.Type == access.KeyExpiring {
				n++
			}
		}
		if n != i+1 {
			t.Errorf("%d notices by a clock that is %s further, want %d", n, after, i+1)
		}
	}
}
