package history_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestMain has the machine in a zone west of Greenwich: times and days are those of UTC all the same.
func TestMain(m *testing.M) {
	time.Local = time.FixedZone("west", -8*60*60)
	os.Exit(m.Run())
}

const (
	firstDay = 20_000 // 2024-10-04
	november = 20_028
)

// usageStore has keys and organizations with usage on some days of a year.
func usageStore(t *testing.T) (store *storage.Store, owners []access.Principal, keys []access.Key) {
	t.Helper()
	store = storagetest.Open(t)
	for _, name := range []string{"acme", "other"} {
		owner, _ := storagetest.Organization(t, store, name, "growth", access.RoleOwner)
		owners = append(owners, owner)
	}
	for i := range 12 {
		key, _ := storagetest.Key(t, store, owners[i%2], access.EventsRead)
		keys = append(keys, key)
	}
	// The numbers have no order, and the last two keys are not used.
	const days = "WITH RECURSIVE d (day) AS (SELECT ?1 UNION ALL SELECT day + 1 FROM d WHERE day < ?1 + 399) "
	storagetest.Exec(t, store, days+`INSERT INTO key_days
		SELECT k.id, day, (k.id * 7919 + day * 104729) % 997, (k.id + day) % 11, k.id * day % 13 FROM d, api_keys k
		WHERE k.id <= ?2 AND (k.id * 31 + day * day) % 7 < 3`, firstDay, keys[9].RowID)
	storagetest.Exec(t, store, days+`INSERT INTO organization_days
		SELECT o.id, day, 1000 + o.id * day % 997, (o.id + day * 7919) % 101, o.id * day % 89, day % 7 FROM d, organizations o WHERE o.id >= ?2`,
		firstDay, owners[0].Home.RowID)
	return store, owners, keys
}

// lister is KeyUsage or OrganizationUsage.
type lister func(organization int64, f access.UsageFilter) access.UsagePage

// all reads page after page.
func (l lister) all(organization int64, f access.UsageFilter) (rows []access.Usage) {
	for {
		page := l(organization, f)
		rows = append(rows, page.Rows...)
		if page.Next.Row == 0 {
			return rows
		}
		f.After = page.Next
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	store, owners, keys := usageStore(t)
	acme, all := owners[0].Home.RowID, int64(access.AllOrganizations)
	year := access.UsageFilter{Since: firstDay, Until: firstDay + 400, Limit: 10_000}
	lists := map[string]lister{
		"keys": func(organization int64, f access.UsageFilter) access.UsagePage {
			return storagetest.Must[access.UsagePage](t)(store.KeyUsage(t.Context(), organization, f))
		},
		"organizations": func(organization int64, f access.UsageFilter) access.UsagePage {
			return storagetest.Must[access.UsagePage](t)(store.OrganizationUsage(t.Context(), organization, f))
		},
	}
	for name, list := range lists {
		t.Run("of "+name+" is that of the organization, newest first", func(t *testing.T) {
			rows, last := list.all(acme, year), access.Usage{Row: 1 << 40}
			if len(rows) < 400 || len(list.all(all, year)) <= len(rows) {
				t.Errorf("%d rows", len(rows))
			}
			for _, u := range rows {
				if u.OrganizationID != owners[0].Organization.ID {
					t.Fatalf("%+v is of another organization", u)
				}
				if u.Row > last.Row || u.Row == last.Row && u.Day >= last.Day {
					t.Fatalf("%+v follows %+v", u, last)
				}
				last = u
			}
		})
		t.Run("of "+name+" by pages is the whole, whatever the limit", func(t *testing.T) {
			for _, byMonth := range []bool{false, true} {
				for _, organization := range []int64{acme, all} {
					whole := year
					whole.ByMonth = byMonth
					want := list.all(organization, whole)
					for _, limit := range []int{3, 7, 31, len(want), len(want) + 1} {
						whole.Limit = limit
						if d := cmp.Diff(want, list.all(organization, whole)); d != "" {
							t.Fatalf("limit %d, by month %v (-want +got):\n%s", limit, byMonth, d)
						}
					}
				}
			}
		})
		t.Run("of "+name+" in a month is the sum of its days", func(t *testing.T) {
			for _, f := range []access.UsageFilter{year, {Since: november, Until: november + 30, Limit: 10_000}} {
				months := map[string]access.Usage{}
				for _, u := range list.all(all, f) {
					u.Day -= int64(time.Unix(u.Day*24*60*60, 0).UTC().Day() - 1)
					id := fmt.Sprint(u.Row, u.Day)
					if sum, found := months[id]; found {
						u.KeyUse.Add(sum.KeyUse)
						u.OrganizationUse.Add(sum.OrganizationUse)
					}
					months[id] = u
				}
				f.ByMonth = true
				got := map[string]access.Usage{}
				for _, u := range list.all(all, f) {
					got[fmt.Sprint(u.Row, u.Day)] = u
				}
				if d := cmp.Diff(months, got); d != "" || len(got) < 2 {
					t.Errorf("%d months (-want +got):\n%s", len(got), d)
				}
			}
		})
	}

	t.Run("has only the days of the period", func(t *testing.T) {
		f := access.UsageFilter{Since: firstDay + 10, Until: firstDay + 13, Limit: 100}
		for _, u := range append(lists["keys"].all(all, f), lists["organizations"].all(all, f)...) {
			if u.Day < f.Since || u.Day >= f.Until {
				t.Errorf("%+v", u)
			}
		}
		if n := len(lists["organizations"].all(acme, f)); n != 3 {
			t.Errorf("%d days", n)
		}
	})

	t.Run("of one key is only its own", func(t *testing.T) {
		f := year
		f.Key, f.Limit = keys[2].RowID, 7
		rows := lists["keys"].all(acme, f)
		for _, u := range rows {
			if u.ID != keys[2].ID {
				t.Fatalf("%+v", u)
			}
		}
		if len(rows) < 50 {
			t.Errorf("%d rows", len(rows))
		}
		f.Key = keys[1].RowID // of the other organization
		if rows := lists["keys"].all(acme, f); len(rows) > 0 {
			t.Errorf("%+v", rows)
		}
	})
}

// TestMonthsOfManyKeys has many keys that were used on each day of a month of 31 days.
func TestMonthsOfManyKeys(t *testing.T) {
	t.Parallel()
	store := storagetest.Open(t)
	owner, _ := storagetest.Organization(t, store, "acme", "growth", access.RoleOwner)
	const keys, october = 45, firstDay - 3
	for range keys {
		storagetest.Key(t, store, owner, access.EventsRead)
	}
	storagetest.Exec(t, store, `
		WITH RECURSIVE d (day) AS (SELECT ?1 UNION ALL SELECT day + 1 FROM d WHERE day < ?1 + 30)
		INSERT INTO key_days SELECT k.id, day, 1, 0, 0 FROM d, api_keys k`, october)
	f := access.UsageFilter{Since: october, Until: october + 31, ByMonth: true, Limit: keys - 1}
	rows := lister(func(organization int64, f access.UsageFilter) access.UsagePage {
		return storagetest.Must[access.UsagePage](t)(store.KeyUsage(t.Context(), organization, f))
	}).all(owner.Home.RowID, f)
	if len(rows) != keys {
		t.Errorf("%d rows", len(rows))
	}
	for _, u := range rows {
		if u.Allowed != 31 {
			t.Errorf("%+v", u)
		}
	}
}
