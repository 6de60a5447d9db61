package retention_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// cleaned opens a store for a test of what is removed in the background, and returns its log. It must be called in a bubble.
func cleaned(t *testing.T, path string) (storagetest.Platform, *logText) {
	t.Helper()
	o, log := storagetest.Options(t, path), &logText{}
	o.Logger, o.KeepEvents, o.KeepAudit = slog.New(slog.NewTextHandler(log, nil)), time.Hour, time.Hour
	store, _ := storagetest.OpenWith(t, o)
	return storagetest.PlatformOf(t, store), log
}

// logText is a log that goes on while a test reads it.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

const manyFail = 45 // more than two lists of those to clean

func TestAClosureThatFailsDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		x, log := cleaned(t, path)
		close := func(name string) access.Closure {
			org := storagetest.Must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: name, Plan: "growth"}))
			storagetest.Must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, org.ID))
			return access.Closure{ID: org.ID}
		}
		complete := func(id string) bool {
			return storagetest.Must[access.Closure](t)(x.CloseOrganization(t.Context(), x.By, id)).Complete
		}
		last := storagetest.Must[access.Organization](t)(x.Directory.CreateOrganization(t.Context(), x.By, access.Organization{Name: "first", Plan: "growth"}))
		allow := storagetest.Refuse(t, x.Store, "UPDATE OF cleaned_at ON organizations", fmt.Sprintf("NEW.id > %d AND NEW.id <= %d", last.RowID, last.RowID+manyFail))
		var failing string
		for i := range manyFail {
			failing = close(fmt.Sprint("failing-", i)).ID
		}
		works := close("works").ID
		time.Sleep(15 * time.Second)
		if complete(failing) || !complete(works) {
			t.Errorf("the failing one is complete: %v, the other one: %v", complete(failing), complete(works))
		}
		if !strings.Contains(log.String(), "cannot remove the data of a closed organization") || !strings.Contains(log.String(), failing) {
			t.Error("the failure is not in the log")
		}
		allow()
		time.Sleep(15 * time.Second)
		if !complete(failing) {
			t.Error("it was not tried again")
		}
	})
}

func TestAnErasureThatFailsDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		x, log := cleaned(t, path)
		complete := func(id string) bool {
			return storagetest.Must[access.Erasure](t)(x.EraseUser(t.Context(), x.By, id)).Complete
		}
		var users []string
		for i := range manyFail + 1 {
			user := storagetest.Must[access.User](t)(x.Directory.CreateUser(t.Context(), x.By, access.User{Name: fmt.Sprint("user-", i), IsActive: true}))
			users = append(users, user.ID)
		}
		failing, works := users[:manyFail], users[manyFail]
		allow := storagetest.Refuse(t, x.Store, "UPDATE OF details ON audit_events", fmt.Sprintf("instr(NEW.target_id, 'usr_') AND NEW.target_id <> '%s'", works))
		for _, id := range users {
			complete(id)
		}
		time.Sleep(15 * time.Second)
		if complete(failing[0]) || complete(failing[manyFail-1]) || !complete(works) {
			t.Errorf("complete are %v and %v, the other one: %v", complete(failing[0]), complete(failing[manyFail-1]), complete(works))
		}
		if !strings.Contains(log.String(), "cannot remove the data of an erased user") || !strings.Contains(log.String(), failing[7]) {
			t.Error("the failure is not in the log")
		}
		allow()
		time.Sleep(15 * time.Second)
		if !complete(failing[manyFail-1]) {
			t.Error("it was not tried again")
		}
	})
}

func TestOldRowsThatCannotBeDeletedDoNotStopTheOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		p, log := cleaned(t, path)
		x := storagetest.CustomerOf(t, p.Store)
		if err := x.Subscriptions.DeleteSubscription(t.Context(), x.Actor(), x.Org(), x.Sub.ID); err != nil {
			t.Fatal(err)
		}
		x.Publish(t, 1, "bad")
		x.Publish(t, 300, "a")
		allow := storagetest.Refuse(t, x.Store, "DELETE ON events", "OLD.type = 'bad'")
		time.Sleep(time.Hour + 30*time.Second)
		left := func(query string) (n int) {
			t.Helper()
			storagetest.Query(t, path, &n, query)
			return n
		}
		if n := left("SELECT count(*) FROM audit_events"); n != 0 {
			t.Errorf("%d old audit events are left", n)
		}
		if left("SELECT count(*) FROM events WHERE type = 'bad'") != 1 || !strings.Contains(log.String(), "cannot delete rows that are older") {
			t.Error("the failure is not in the log")
		}
		allow()
		time.Sleep(30 * time.Second)
		if n := left("SELECT count(*) FROM events"); n != 0 {
			t.Errorf("%d old events are left", n)
		}
	})
}

// TestOldUsageThatCannotBeDeletedKeepsNothingElse fails to delete the old usage of an organization, and not that of a key.
func TestOldUsageThatCannotBeDeletedKeepsNothingElse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	synctest.Test(t, func(t *testing.T) {
		p, _ := cleaned(t, path)
		owner, _ := storagetest.Organization(t, p.Store, "acme", "growth", access.RoleOwner)
		key, _ := storagetest.Key(t, p.Store, owner, access.EventsRead)
		allow := storagetest.Refuse(t, p.Store, "DELETE ON organization_days", "true")
		storagetest.Exec(t, p.Store, "INSERT INTO organization_days VALUES (?, 100, 1, 1, 1, 1)", owner.Home.RowID)
		storagetest.Exec(t, p.Store, "INSERT INTO key_days VALUES (?, 100, 1, 0, 0)", key.RowID)
		for _, want := range [][2]int{{1, 0}, {0, 0}} {
			time.Sleep(10 * time.Minute)
			var got [2]int
			for i, table := range []string{"organization_days", "key_days"} {
				storagetest.Query(t, path, &got[i], "SELECT count(*) FROM "+table+" WHERE day = 100")
			}
			if got != want {
				t.Errorf("%v old days of organizations and keys are left, want %v", got, want)
			}
			if want[0] > 0 {
				allow()
			}
		}
	})
}
