package storage_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// pagesOf reads a whole list of organizations by pages, and returns the names.
func pagesOf(t *testing.T, s *storage.Store, f access.OrganizationFilter) (names string) {
	t.Helper()
	var all []string
	limit := f.Limit
	for f.Limit++; ; {
		page, err := s.OrganizationPage(t.Context(), f)
		if err != nil || page.Next != 0 {
			t.Fatal(page.Next, err)
		}
		for _, o := range page.Rows[:min(len(page.Rows), limit)] {
			all = append(all, o.Name)
		}
		if len(page.Rows) <= limit {
			return strings.Join(all, " ")
		}
		last := page.Rows[limit-1]
		f.Before, f.Figure = last.Organization.RowID, f.Sort.Of(last.OrganizationFigures)
	}
}

func TestOrganizationsInOrder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		store, _ := storagetest.OpenWith(t, storagetest.Options(t, path))
		owners := map[string]access.Principal{}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			owners[name], _ = storagetest.Organization(t, store, name, "enterprise", access.RoleOwner)
			for range 3 {
				storagetest.Subscription(t, store, owners[name], "https://example.com/", "user.created")
			}
		}
		of := func(name string) int64 { return owners[name].Organization.RowID }
		// b has two in trouble; a and d have one; of c, one is paused by hand, one was paused after failures had disabled it, and one was deleted.
		storagetest.Exec(t, store, `UPDATE subscriptions SET status = 'failing', last_error = 'dns' WHERE id IN (
			SELECT max(id) FROM subscriptions WHERE organization_id IN (?1, ?2) GROUP BY organization_id UNION SELECT min(id) FROM subscriptions WHERE organization_id = ?2)`, of("a"), of("b"))
		storagetest.Exec(t, store, "UPDATE subscriptions SET status = 'disabled', last_error = 'dns' WHERE id = (SELECT max(id) FROM subscriptions WHERE organization_id = ?)", of("d"))
		storagetest.Exec(t, store, "UPDATE subscriptions SET status = 'disabled', last_error = 'by hand', paused = 1 WHERE id = (SELECT max(id) FROM subscriptions WHERE organization_id = ?)", of("c"))
		storagetest.Exec(t, store, "UPDATE subscriptions SET status = 'failing', last_error = 'dns', deleted_at = 1 WHERE id = (SELECT min(id) FROM subscriptions WHERE organization_id = ?)", of("c"))
		storagetest.Exec(t, store, "UPDATE subscriptions SET status = 'disabled', last_error = 'dns', probe_at = -1 WHERE id = (SELECT max(id) - 1 FROM subscriptions WHERE organization_id = ?)", of("c"))
		for _, name := range []string{"c", "e", "c", "a"} {
			time.Sleep(1500 * time.Millisecond)
			storagetest.Publish(t, store, owners[name], "user.created")
		}
		last := time.Now().UnixMilli()
		storagetest.Publish(t, store, owners["a"], "user.created")
		must[access.Organization](t)(store.Directory.UpdateOrganization(t.Context(), storagetest.Operator(t, store).Actor("", ""), owners["b"].Organization.ID, access.OrganizationChange{Name: new("b")}))
		time.Sleep(time.Second)

		for _, c := range []struct {
			sort access.OrganizationSort
			want string
		}{
			{"", "e d c b a Default"}, {access.ByTrouble, "b a d c e Default"}, {access.ByPending, "a c e d b Default"}, {access.ByLastEvent, "a c e d b Default"},
		} {
			for _, limit := range []int{1, 2, 10} {
				if got := pagesOf(t, store, access.OrganizationFilter{Sort: c.sort, Limit: limit}); got != c.want {
					t.Errorf("by %q, in pages of %d: %s, want %s", c.sort, limit, got, c.want)
				}
			}
		}
		if got := pagesOf(t, store, access.OrganizationFilter{Sort: access.ByTrouble, Beginning: "D", Limit: 1}); got != "d Default" {
			t.Errorf("found %s", got)
		}
		today := time.Now().Unix() / (24 * 60 * 60)
		storagetest.Exec(t, store, "INSERT INTO organization_days VALUES (?1, ?2 - 30, 0, 10, 0, 0), (?1, ?2 - 31, 0, 100, 0, 0)", of("a"), today)
		time.Sleep(time.Second)
		page, err := store.OrganizationPage(t.Context(), access.OrganizationFilter{Limit: 10})
		a := slices.IndexFunc(page.Rows, func(o access.ListedOrganization) bool { return o.Name == "a" })
		if got := page.Rows[a]; err != nil || got.InTrouble != 1 || got.Pending != 6 || got.Events != 12 || *got.Organization.LastEventAt != last || page.Rows[0].Pending != 3 {
			t.Errorf("%+v, error %v", got, err)
		}
		storagetest.Exec(t, store, "UPDATE subscriptions SET deleted_at = 1 WHERE id = (SELECT max(id) FROM subscriptions WHERE organization_id = ?)", of("e"))
		time.Sleep(time.Second)
		if figures, err := store.Survey.OrganizationFigures(t.Context()); err != nil || figures[of("e")].Pending != 2 {
			t.Errorf("with a deleted subscription: %+v, error %v", figures[of("e")], err)
		}
		storagetest.NoneGrows(t, store, map[string]string{"FROM json_each(?1) j CROSS JOIN organizations": "TEMP B-TREE FOR ORDER BY"})
	})
}

// BenchmarkOrganizationPage has 10,000 organizations with one subscription each, all of which have pending deliveries.
func BenchmarkOrganizationPage(b *testing.B) {
	store := storagetest.Open(b)
	storagetest.Exec(b, store, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
		INSERT INTO organizations (public_id, name, plan_id, last_event_at, created_at, updated_at) SELECT 'org_' || i, 'Customer ' || i, 1, i, 0, 0 FROM n`)
	storagetest.Exec(b, store, `INSERT INTO subscriptions (public_id, organization_id, url, url_at, event_types, audit_events, description, status, consecutive_failures,
			last_error, epoch, failing_since, probe_at, paused, ordered, secret, previous_until, birth, created_at, updated_at)
		SELECT 'sub_' || id, id, 'https://example.com/', 0, '', 0, '', iif(id % 10 = 0, 'failing', 'healthy'), 0, iif(id % 10 = 0, 'dns', ''), 0, 0, 0, 0, 0, x'00', 0, 0, 0, 0 FROM organizations`)
	store.CountPending(10_000)
	for name, f := range map[string]access.OrganizationFilter{
		"newest": {Limit: 51}, "by trouble": {Sort: access.ByTrouble, Limit: 51}, "by trouble, searched": {Sort: access.ByTrouble, Beginning: "Customer 77", Limit: 51},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if page, err := store.OrganizationPage(b.Context(), f); err != nil || len(page.Rows) < 51 {
					b.Fatal(len(page.Rows), err)
				}
			}
		})
	}
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			if figures, err := store.FreshSurvey().OrganizationFigures(b.Context()); err != nil || figures[1000].Pending == 0 {
				b.Fatal(err)
			}
		}
	})
}
