package usage_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestMain has the machine in a zone west of Greenwich: times and days are those of UTC all the same.
func TestMain(m *testing.M) {
	time.Local = time.FixedZone("west", -8*60*60)
	os.Exit(m.Run())
}

const (
	ofKeys          = "/api/v1/usage/keys/"
	ofOrganizations = "/api/v1/usage/organizations/"
)

// fixture is a server with an organization that has usage on some days only.
type fixture struct {
	*servertest.Fixture
	owner access.Principal
	as    string
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	f := fixture{Fixture: servertest.Build(t)}
	var token access.Credential
	f.owner, token = storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	f.as = servertest.Bearer(token)
	return f
}

// key creates a key with a name.
func (f fixture) key(t *testing.T, name string) access.Key {
	t.Helper()
	key, _ := storagetest.Key(t, f.Store, f.owner, access.EventsRead)
	storagetest.Exec(t, f.Store, "UPDATE api_keys SET name = ? WHERE id = ?", name, key.RowID)
	return key
}

// use gives a key, and its organization, usage on a day.
func (f fixture) use(t *testing.T, key access.Key, date string, n int) {
	t.Helper()
	at, err := time.Parse(time.DateOnly, date)
	if err != nil {
		t.Fatal(err)
	}
	day := at.Unix() / 86_400
	storagetest.Exec(t, f.Store, "INSERT INTO key_days VALUES (?, ?, ?, 0, 0)", key.RowID, day, n)
	storagetest.Exec(t, f.Store, "INSERT INTO organization_days VALUES (?, ?, 0, ?, 0, 0) ON CONFLICT DO UPDATE SET events = ?", f.owner.Home.RowID, day, n, n)
}

// periods returns the periods of a list, each with its number.
func (f fixture) periods(t *testing.T, path string) (list []string) {
	t.Helper()
	for _, item := range f.List(t, f.as, path).Data {
		n := item["allowed"]
		if n == nil {
			n = item["events"]
		}
		list = append(list, fmt.Sprint(item["period"], " ", n))
	}
	return list
}

// TestPeriodsOfUsage has a first and a last day of a month, a leap year, and the end of a year.
func TestPeriodsOfUsage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key(t, "k")
	for i, date := range []string{"2023-11-30", "2023-12-01", "2023-12-31", "2024-01-01", "2024-01-31", "2024-02-01", "2024-02-29", "2024-03-01"} {
		f.use(t, key, date, 1<<i)
	}
	for query, want := range map[string][]string{
		"since=2024-02-01T00:00:00Z&until=2024-03-01T00:00:00Z":                    {"2024-02-29 64", "2024-02-01 32"},
		"since=2024-02-29T23:59:59.999Z&until=2024-03-01T00:00:00.001Z":            {"2024-03-01 128", "2024-02-29 64"},
		"since=2024-01-01T01:00:00%2B02:00&until=2024-01-01T01:30:00%2B02:00":      {"2023-12-31 4"},
		"step=month&since=2024-02-29T23:00:00Z&until=2024-03-01T00:00:00Z":         {"2024-02 96"},
		"step=month&since=2024-02-29T23:00:00Z&until=2024-03-01T00:00:00.001Z":     {"2024-03 128", "2024-02 96"},
		"step=month&since=2023-12-31T12:00:00Z&until=2024-01-01T12:00:00Z":         {"2024-01 24", "2023-12 6"},
		"step=month&since=2024-01-31T00:00:00Z&until=2024-02-01T00:00:00Z":         {"2024-01 24"},
		"step=month&since=2023-12-01T00:00:00Z&until=2023-12-01T00:00:01Z":         {"2023-12 6"},
		"step=month&since=2023-02-01T00:00:00Z&until=2024-03-01T00:00:00Z&limit=2": {"2024-02 96", "2024-01 24"},
	} {
		for _, path := range []string{ofKeys, ofOrganizations} {
			if diff := cmp.Diff(want, f.periods(t, path+"?"+query)); diff != "" {
				t.Errorf("%s?%s (-want +got):\n%s", path, query, diff)
			}
		}
	}
}

// TestUsageWithoutAPeriod has usage on each of 70 days.
func TestUsageWithoutAPeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		key := f.key(t, "k")
		time.Sleep(time.Minute) // until 2000-01-01, 00:01
		now := time.Now().UTC()
		for i := range 70 {
			f.use(t, key, now.AddDate(0, 0, -i).Format(time.DateOnly), 1)
		}
		for query, want := range map[string]string{
			"":                                "31 from 1999-12-02 to 2000-01-01", // 30 days before this moment
			"until=1999-12-31T00:00:00Z":      "30 from 1999-12-01 to 1999-12-30",
			"since=1999-12-30T00:00:00Z":      "3 from 1999-12-30 to 2000-01-01",
			"step=month":                      "2 from 1999-12 to 2000-01",
			"since=2000-01-02T00:00:00Z":      "0",
			"since=2000-01-01T00:00:00Z":      "1 from 2000-01-01 to 2000-01-01",
			"step=month&key_id=" + key.ID:     "2 from 1999-12 to 2000-01",
			"since=1999-12-30T00%3A00%3A00Z&": "3 from 1999-12-30 to 2000-01-01",
		} {
			list := f.periods(t, ofKeys+"?limit=200&"+query)
			got := fmt.Sprint(len(list))
			if len(list) > 0 {
				newest, _, _ := strings.Cut(list[0], " ")
				oldest, _, _ := strings.Cut(list[len(list)-1], " ")
				got += " from " + oldest + " to " + newest
			}
			if got != want {
				t.Errorf("%q has %s, want %s", query, got, want)
			}
		}
	})
}

func TestUsageOfOneKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i, name := range []string{"first", "second", "third"} {
		f.use(t, f.key(t, name), "2024-02-01", i+1)
		f.use(t, f.key(t, name+"'s neighbour"), "2024-02-02", i+1)
	}
	named := map[string]string{}
	for _, item := range f.List(t, f.as, ofKeys+"?since=2024-02-01T00:00:00Z&until=2024-03-01T00:00:00Z").Data {
		named[item["name"].(string)] = item["key_id"].(string)
	}
	const period = "since=2024-02-01T00:00:00Z&until=2024-03-01T00:00:00Z&"
	for name, id := range named {
		for _, step := range []string{"day", "month"} {
			data := f.List(t, f.as, ofKeys+"?"+period+"step="+step+"&key_id="+id).Data
			if len(data) != 1 || data[0]["name"] != name || data[0]["key_id"] != id {
				t.Errorf("%s by %s: %v", name, step, data)
			}
		}
		text := f.Do(t, "GET "+ofKeys+"?"+period+"key_id="+id, f.as, "", "Accept", "text/csv").Want(t, 200, "").Text
		if lines := strings.Split(text, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[1], id+",") {
			t.Errorf("%s in CSV: %s", name, text)
		}
	}
	if len(named) != 6 {
		t.Errorf("%d keys", len(named))
	}
}

// TestCSVOfUsage compares whole texts.
func TestCSVOfUsage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Do(t, "PATCH "+servertest.Orgs+f.owner.Home.ID+"/", servertest.Operator, `{"name":"A \"B\", C","external_id":"@acme"}`).Want(t, 200, "")
	key := f.key(t, `=HYPERLINK("http://evil.example")`)
	for i, date := range []string{"2024-02-28", "2024-02-29", "2024-03-01"} {
		f.use(t, key, date, i+1)
	}
	storagetest.Exec(t, f.Store, "UPDATE organization_days SET stored_bytes = 100, succeeded = 5, failed = 6 WHERE events = 3")
	const (
		keys          = "key_id,name,organization_id,organization_external_id,period,allowed,rate_limited,forbidden\n"
		organizations = "organization_id,organization_external_id,name,period,events,deliveries_succeeded,deliveries_failed,stored_bytes\n"
		period        = "?since=2024-02-01T00:00:00Z&until=2024-04-01T00:00:00Z"
	)
	ofKey := func(rest string) string {
		return key.ID + `,"'=HYPERLINK(""http://evil.example"")",` + f.owner.Home.ID + ",'@acme," + rest + ",0,0\n"
	}
	ofAcme := func(rest string) string { return f.owner.Home.ID + `,'@acme,"A ""B"", C",` + rest + "\n" }
	for path, want := range map[string]string{
		ofKeys + period:                                 keys + ofKey("2024-03-01,3") + ofKey("2024-02-29,2") + ofKey("2024-02-28,1"),
		ofKeys + period + "&step=month":                 keys + ofKey("2024-03,3") + ofKey("2024-02,3"),
		ofOrganizations + period:                        organizations + ofAcme("2024-03-01,3,5,6,100") + ofAcme("2024-02-29,2,0,0,0") + ofAcme("2024-02-28,1,0,0,0"),
		ofOrganizations + period + "&step=month":        organizations + ofAcme("2024-03,3,5,6,100") + ofAcme("2024-02,3,0,0,0"),
		ofKeys + "?until=2020-01-01T00:00:00Z":          keys,
		ofOrganizations + "?until=2020-01-01T00:00:00Z": organizations,
	} {
		got := f.Do(t, "GET "+path, f.as, "", "Accept", "text/csv").Want(t, 200, "").Text
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

func TestPeriodsThatAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for query, want := range map[string]string{
		"since=2024-01-01T00:00:00Z&until=2025-02-05T00:00:00Z":                "", // 400 days, and the present one
		"since=2024-01-01T00:00:00Z&until=2025-02-05T00:00:00.001Z":            "since",
		"since=2024-01-01T00:00:00Z&until=2024-01-01T00:00:00Z":                "until",
		"since=2024-01-01T00:00:00.001Z&until=2024-01-01T00:00:00Z":            "until",
		"step=month&since=2024-01-01T00:00:00.001Z&until=2024-01-01T00:00:00Z": "until",
		"step=month&since=2024-01-01T00:00:00Z&until=2025-02-05T00:00:00Z":     "",
	} {
		for _, path := range []string{ofKeys, ofOrganizations} {
			r := f.Do(t, "GET "+path+"?"+query, f.as, "")
			if want == "" {
				r.Want(t, 200, "")
			} else if text := r.Want(t, 400, "invalid_parameter").Text; !strings.Contains(text, `"field":"`+want+`"`) {
				t.Errorf("%s?%s: %s, want %s", path, query, text, want)
			}
		}
	}
}

// TestPagesOfUsage has two keys on three days.
func TestPagesOfUsage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"a", "b"} {
		key := f.key(t, name)
		for i, date := range []string{"2024-02-28", "2024-02-29", "2024-03-01"} {
			f.use(t, key, date, i+1)
		}
	}
	const period = "?since=2024-02-01T00:00:00Z&until=2024-04-01T00:00:00Z"
	for _, path := range []string{ofKeys + period, ofOrganizations + period, ofKeys + period + "&step=month", ofOrganizations + period + "&step=month"} {
		want := f.List(t, f.as, path).Data
		var got []map[string]any
		for next := ""; ; {
			page := f.List(t, f.as, path+"&limit=1"+next)
			got = append(got, page.Data...)
			if page.NextCursor == nil || len(got) > len(want) {
				break
			}
			next = "&cursor=" + *page.NextCursor
		}
		if diff := cmp.Diff(want, got); diff != "" || len(want) < 2 {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}
