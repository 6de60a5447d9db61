package server_test

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

const (
	usageOfKeys          = "/api/v1/usage/keys/"
	usageOfOrganizations = "/api/v1/usage/organizations/"
)

// used returns what the usage counts for a key: allowed, rate limited, forbidden.
func (f *testServer) used(t *testing.T, organization, key string) string {
	t.Helper()
	if err := f.Store.Directory.KeepUses(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	var page struct{ Data []map[string]any }
	text := f.Do(t, "GET "+usageOfKeys+"?key_id="+key, servertest.Operator, "", "X-Organization-Id", organization).Want(t, 200, "").Text
	if err := json.Unmarshal([]byte(text), &page); err != nil || len(page.Data) > 1 {
		t.Fatalf("%v: %s", err, text)
	}
	if len(page.Data) == 0 {
		return "none"
	}
	return fmt.Sprint(page.Data[0]["allowed"], page.Data[0]["rate_limited"], page.Data[0]["forbidden"])
}

func TestWhatCountsAsUsage(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.Plan(t, "four", true, true, "4")
	f.Plan(t, "none", false, true, "4")
	const verify, home = "POST /api/v1/auth/verify/", "203.0.113.9"
	ask := func(t *testing.T, raw, more string) {
		t.Helper()
		f.Do(t, verify, servertest.Operator, `{"key":"`+raw+`"`+more+`}`).Want(t, 200, "")
	}
	for name, test := range map[string]struct {
		request func(t *testing.T, as string, raw access.Credential, organization string)
		want    string
	}{
		"a request that passes": {func(t *testing.T, as string, _ access.Credential, _ string) {
			f.Do(t, "GET /api/v1/events/", as, "").Want(t, 200, "")
		}, "1 0 0"},
		"a request for a resource that does not exist": {func(t *testing.T, as string, _ access.Credential, _ string) {
			f.Do(t, "GET /api/v1/events/evt_"+servertest.SomeID+"/", as, "").Want(t, 404, "")
		}, "1 0 0"},
		"a request without permission": {func(t *testing.T, as string, _ access.Credential, _ string) {
			f.Do(t, "GET /api/v1/audit-events/", as, "").Want(t, 403, "permission_denied")
		}, "0 0 1"},
		"a request that a plan without keys refuses": {func(t *testing.T, as string, _ access.Credential, organization string) {
			f.Move(t, organization, "none")
			f.Do(t, "GET /api/v1/events/", as, "").Want(t, 403, "plan_capability_required")
		}, "0 0 1"},
		"six requests of four that are allowed": {func(t *testing.T, as string, _ access.Credential, _ string) {
			for range 6 {
				f.Do(t, "GET /api/v1/events/", as, "")
			}
		}, "4 2 0"},
		"a request for another organization": {func(t *testing.T, as string, _ access.Credential, _ string) {
			f.Do(t, "GET /api/v1/events/", as, "", "X-Organization-Id", "org_"+servertest.SomeID).Want(t, 404, "")
		}, "none"},
		"a request for no path": {func(t *testing.T, as string, _ access.Credential, _ string) {
			f.Do(t, "GET /api/v1/orders/", as, "").Want(t, 404, "")
		}, "none"},
		"a request with an unknown key": {func(t *testing.T, _ string, _ access.Credential, _ string) {
			f.Do(t, "GET /api/v1/events/", servertest.APIKey(access.Mint("svc")), "").Want(t, 401, "")
		}, "none"},
		"verify of a back end": {func(t *testing.T, _ string, raw access.Credential, _ string) {
			ask(t, raw.Reveal(), "")
			ask(t, raw.Reveal(), `,"permission":"events:read"`)
			ask(t, raw.Reveal(), `,"permission":"events:write"`)
		}, "2 0 1"},
		"a proxy": {func(t *testing.T, as string, _ access.Credential, _ string) {
			f.Do(t, "GET "+gate+"forward/events:read/", as, "").Want(t, 200, "")
			f.Do(t, "GET "+gate+"nginx/events:write/", as, "").Want(t, 403, "")
			for range 4 {
				f.Do(t, "GET "+gate+"nginx/", as, "")
			}
		}, "3 2 1"},
		"an explanation": {func(t *testing.T, _ string, raw access.Credential, _ string) {
			f.explain(t, servertest.Operator, raw.Reveal(), "GET /api/v1/events/")
		}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner, _ := storagetest.Organization(t, f.Store, strings.ReplaceAll(name, " ", "-"), "four", access.RoleOwner)
			key, raw := storagetest.Key(t, f.Store, owner, access.EventsRead)
			test.request(t, servertest.APIKey(raw), raw, owner.Organization.ID)
			if got := f.used(t, owner.Organization.ID, key.ID); got != test.want {
				t.Errorf("counts as %s, want %s", got, test.want)
			}
		})
	}

	t.Run("a key that was revoked, or used from elsewhere", func(t *testing.T) {
		t.Parallel()
		owner, token := storagetest.Organization(t, f.Store, "networks", "four", access.RoleOwner)
		made := f.Do(t, "POST /api/v1/api-keys/", servertest.Bearer(token), `{"name":"office","scope":"events:read","allowed_networks":["`+home+`"]}`).Want(t, 201, "")
		as := "ApiKey " + made.Field("key")
		f.Do(t, "GET /api/v1/events/", as, "").Want(t, 403, "client_address_not_allowed")
		ask(t, made.Field("key"), `,"client_ip":"`+home+`"`)
		f.Do(t, "DELETE /api/v1/api-keys/"+made.Field("id")+"/", servertest.Bearer(token), "").Want(t, 204, "")
		f.Do(t, "GET /api/v1/events/", as, "").Want(t, 401, "")
		ask(t, made.Field("key"), "")
		if got := f.used(t, owner.Organization.ID, made.Field("id")); got != "1 0 1" {
			t.Errorf("counts as %s", got)
		}
	})

	t.Run("a back end with a key of its own counts for both keys", func(t *testing.T) {
		t.Parallel()
		owner, _ := storagetest.Organization(t, f.Store, "asked", "four", access.RoleOwner)
		key, raw := storagetest.Key(t, f.Store, owner, access.EventsRead)
		operator := storagetest.Operator(t, f.Store)
		own, backEnd := storagetest.Key(t, f.Store, operator, access.APIKeysRead, access.PlatformActAs)
		f.Do(t, verify, servertest.APIKey(backEnd), `{"key":"`+raw.Reveal()+`","permission":"events:write"}`).Want(t, 200, "")
		if asked, asking := f.used(t, owner.Organization.ID, key.ID), f.used(t, operator.Organization.ID, own.ID); asked != "0 0 1" || asking != "1 0 0" {
			t.Errorf("the key counts as %s, and that of the back end as %s", asked, asking)
		}
	})

	t.Run("a key that rotates counts for itself, under one window", func(t *testing.T) {
		t.Parallel()
		owner, token := storagetest.Organization(t, f.Store, "rotates", "four", access.RoleOwner)
		key, raw := storagetest.Key(t, f.Store, owner, access.EventsRead)
		next := f.Do(t, "POST /api/v1/api-keys/"+key.ID+"/rotate/", servertest.Bearer(token), `{"grace_seconds":60}`).Want(t, 201, "")
		for range 3 {
			f.Do(t, "GET /api/v1/events/", servertest.APIKey(raw), "")
			f.Do(t, "GET /api/v1/events/", "ApiKey "+next.Field("key"), "")
		}
		if old, heir := f.used(t, owner.Organization.ID, key.ID), f.used(t, owner.Organization.ID, next.Field("id")); old != "2 1 0" || heir != "2 1 0" {
			t.Errorf("the old key counts as %s, and the new one as %s", old, heir)
		}
	})
}

// withUsage returns a server with two organizations, whose keys have usage from the first to the last day, and the names of
// the keys of the first one.
func withUsage(t *testing.T, days int, change ...func(*server.Options)) (f *testServer, owner access.Principal, token access.Credential) {
	t.Helper()
	f = start(t, change...)
	owner, token = storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	other, _ := storagetest.Organization(t, f.Store, "=other", "growth", access.RoleOwner)
	for i, by := range []access.Principal{owner, owner, other} {
		key, _ := storagetest.Key(t, f.Store, by, access.EventsRead)
		storagetest.Exec(t, f.Store, "UPDATE api_keys SET name = ? WHERE id = ?", []string{"=1+1", "@SUM(A1)", "a, \"b\""}[i], key.RowID)
	}
	const from = `WITH RECURSIVE d (day) AS (SELECT unixepoch() / 86400 UNION ALL SELECT day - 1 FROM d WHERE day > unixepoch() / 86400 - ? + 1) `
	storagetest.Exec(t, f.Store, from+"INSERT INTO key_days SELECT k.id, day, day % 100, 1, 2 FROM d, api_keys k", days)
	storagetest.Exec(t, f.Store, from+"INSERT OR REPLACE INTO organization_days SELECT o.id, day, 3, 1, 2, 0 FROM d, organizations o", days)
	return f, owner, token
}

func TestUsageLists(t *testing.T) {
	t.Parallel()
	f, owner, token := withUsage(t, 3)
	as := servertest.Bearer(token)
	date := func(daysAgo int) string { return time.Now().UTC().AddDate(0, 0, -daysAgo).Format(time.DateOnly) }

	t.Run("are of the organization, newest key and newest day first", func(t *testing.T) {
		t.Parallel()
		var got []string
		for _, item := range f.List(t, as, usageOfKeys).Data {
			if item["organization_id"] != owner.Organization.ID {
				t.Errorf("%v", item)
			}
			got = append(got, fmt.Sprint(item["name"], " ", item["period"]))
		}
		want := []string{"@SUM(A1) " + date(0), "@SUM(A1) " + date(1), "@SUM(A1) " + date(2), "=1+1 " + date(0), "=1+1 " + date(1), "=1+1 " + date(2)}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		for _, item := range f.List(t, as, usageOfOrganizations).Data {
			isToday := item["period"] == date(0) // audit events of the set-up may be counted after it
			if item["name"] != "acme" || item["events"] != 1.0 || item["deliveries_succeeded"] != 2.0 || !isToday && item["stored_bytes"] != 3.0 {
				t.Errorf("%v", item)
			}
		}
	})

	t.Run("have pages, of days and of months", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{usageOfKeys + "?", usageOfKeys + "?step=month&", usageOfOrganizations + "?organization=all&", usageOfKeys + "?step=month&organization=all&"} {
			whole := f.All(t, servertest.Operator, path, "period", 200)
			if d := cmp.Diff(whole, f.All(t, servertest.Operator, path, "period", 1)); d != "" {
				t.Errorf("%s (-whole +by pages):\n%s", path, d)
			}
		}
	})

	t.Run("cover the whole days of a period", func(t *testing.T) {
		t.Parallel()
		for query, want := range map[string]int{
			"": 6, "since=" + date(1) + "T00:00:00Z": 4, "since=" + date(1) + "T23:59:59Z": 4, "until=" + date(0) + "T00:00:00Z": 4,
			"until=" + date(0) + "T00:00:00.001Z": 6, "since=" + date(1) + "T00:00:00Z&until=" + date(0) + "T00:00:00Z": 2,
			"since=" + date(1) + "T00:00:00%2B02:00": 6, "since=" + date(400) + "T00:00:00Z": 6, "until=" + date(2) + "T00:00:00Z": 0,
		} {
			if n := len(f.List(t, as, usageOfKeys+"?"+query).Data); n != want {
				t.Errorf("%q has %d items, want %d", query, n, want)
			}
		}
	})

	t.Run("cover whole months, each of which is the sum of its days", func(t *testing.T) {
		t.Parallel()
		f := start(t)
		owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
		key, _ := storagetest.Key(t, f.Store, owner, access.EventsRead)
		now := time.Now().UTC()
		last := time.Date(now.Year(), now.Month(), 0, 12, 0, 0, 0, time.UTC) // of the month before this one
		for i, day := range []int{0, 1, 10, 15, last.Day(), last.Day() + 1} {
			at := last.AddDate(0, 0, day-last.Day()).Unix() / (24 * 60 * 60)
			storagetest.Exec(t, f.Store, "INSERT INTO key_days VALUES (?, ?, ?, 0, 0)", key.RowID, at, []int{1000, 1, 2, 4, 8, 2000}[i])
		}
		month := last.Format("2006-01")
		for _, period := range []string{"10T12:00:00Z 15T12:00:00Z", "01T00:00:00Z 02T00:00:00Z", fmt.Sprintf("10T00:00:00Z %dT23:59:59Z", last.Day())} {
			from, to, _ := strings.Cut(period, " ")
			items := f.List(t, servertest.Bearer(token), usageOfKeys+"?step=month&since="+month+"-"+from+"&until="+month+"-"+to).Data
			if len(items) != 1 || items[0]["period"] != month || items[0]["allowed"] != 15.0 {
				t.Errorf("%s: %v", period, items)
			}
		}
		if items := f.List(t, servertest.Bearer(token), usageOfKeys+"?since="+month+"-10T12:00:00Z&until="+month+"-15T12:00:00Z").Data; len(items) != 2 {
			t.Errorf("%v", items)
		}
	})

	t.Run("need a period that can be", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{usageOfKeys, usageOfOrganizations} {
			for query, want := range map[string]string{
				"since=" + date(1) + "T00:00:00Z&until=" + date(2) + "T00:00:00Z": "until: invalid_parameter",
				"since=" + date(1) + "T00:00:00Z&until=" + date(1) + "T00:00:00Z": "until: invalid_parameter",
				"since=" + date(402) + "T00:00:00Z":                               "since: invalid_parameter",
				"since=yesterday":                                                 "since: invalid_parameter",
				"step=week":                                                       "step: invalid_parameter",
				"steps=day":                                                       "steps: unknown_parameter",
			} {
				if got := f.Do(t, "GET "+path+"?"+query, as, "").Want(t, 400, "").Fields(); len(got) != 1 || got[0] != want {
					t.Errorf("%s: %v", query, got)
				}
			}
		}
	})

	t.Run("of one key take its id or its external id, in one organization", func(t *testing.T) {
		t.Parallel()
		mine := f.Do(t, "POST /api/v1/api-keys/", as, `{"name":"x","scope":"events:read","external_id":"mine"}`).Want(t, 201, "").Field("id")
		for _, name := range []string{mine, "mine"} {
			if n := len(f.List(t, as, usageOfKeys+"?key_id="+name).Data); n != 0 {
				t.Errorf("%d items", n)
			}
			f.Do(t, "GET "+usageOfKeys+"?key_id="+name, servertest.Operator, "").Want(t, 404, "not_found")
		}
		f.Do(t, "GET "+usageOfKeys+"?organization=all&key_id="+mine, servertest.Operator, "").Want(t, 400, "invalid_parameter")
	})

	t.Run("of all organizations need platform:read, and all need api_keys:read", func(t *testing.T) {
		t.Parallel()
		f := start(t) // the other tests count days of keys, and these keys have some
		owner, _ := storagetest.Organization(t, f.Store, "narrow", "growth", access.RoleOwner)
		_, narrow := storagetest.Key(t, f.Store, owner, access.EventsRead)
		_, reads := storagetest.Key(t, f.Store, owner, access.APIKeysRead)
		for _, path := range []string{usageOfKeys, usageOfOrganizations} {
			f.Do(t, "GET "+path, servertest.APIKey(narrow), "").Want(t, 403, "permission_denied")
			f.Do(t, "GET "+path, servertest.APIKey(reads), "").Want(t, 200, "")
			f.Do(t, "GET "+path+"?organization=all", servertest.APIKey(reads), "").Want(t, 403, "permission_denied")
			f.Do(t, "GET "+path+"?organization=all", servertest.APIKey(reads), "", "Accept", "text/csv").Want(t, 403, "permission_denied")
		}
	})
}

// records parses CSV.
func records(t *testing.T, text string) [][]string {
	t.Helper()
	all, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(all) == 0 {
		t.Fatalf("%v: %s", err, text)
	}
	return all
}

func TestUsageAsCSV(t *testing.T) {
	t.Parallel()
	f, owner, token := withUsage(t, 3)
	as := servertest.Bearer(token)
	f.Do(t, "PATCH "+servertest.Orgs+owner.Organization.ID+"/", servertest.Operator, `{"external_id":"-17"}`).Want(t, 200, "")

	t.Run("has no formula, whoever chose the text", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{usageOfKeys, usageOfOrganizations} {
			all := records(t, f.Do(t, "GET "+path+"?organization=all", servertest.Operator, "", "Accept", "text/csv").Want(t, 200, "").Text)
			text := fmt.Sprint(all)
			for _, name := range map[string][]string{usageOfKeys: {"'=1+1", "'@SUM(A1)", "a, \"b\"", "'-17"}, usageOfOrganizations: {"'=other", "acme", "'-17"}}[path] {
				if !strings.Contains(text, name) {
					t.Errorf("no %s in %s", name, text)
				}
			}
			for _, row := range all {
				for _, cell := range row {
					if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
						t.Errorf("the cell %q", cell)
					}
				}
			}
		}
	})

	t.Run("is sent if Accept lists it", func(t *testing.T) {
		t.Parallel()
		for accept, want := range map[string]string{
			"text/csv": "text/csv", "TEXT/CSV; Header=present": "text/csv", "application/json, text/csv;q=0.001": "text/csv", "text/csv; Q=1": "text/csv",
			"": "application/json", "*/*": "application/json", "text/csv;q=0": "application/json", "text/csv; q=0.000, */*": "application/json",
			"text/csv-schema": "application/json", "text/html;alt=text/csv": "application/json",
		} {
			answer := f.Do(t, "GET "+usageOfKeys, as, "", "Accept", accept).Want(t, 200, "")
			if got, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";"); got != want {
				t.Errorf("Accept: %s gets %s, want %s", accept, got, want)
			}
		}
	})

	t.Run("has the fields of the JSON, and all its items", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{usageOfKeys, usageOfOrganizations} {
			answer := f.Do(t, "GET "+path, as, "", "Accept", "application/json;q=0.5, Text/CSV;q=0.9")
			if got := answer.Header.Get("Content-Type"); got != "text/csv; charset=utf-8" {
				t.Errorf("Content-Type %s", got)
			}
			all, items := records(t, answer.Text), f.List(t, as, path).Data
			if len(all) != len(items)+1 {
				t.Fatalf("%d lines, want %d and one with names", len(all), len(items))
			}
			for i, item := range items {
				for column, name := range all[0] {
					if want := strings.TrimPrefix(all[i+1][column], "'"); fmt.Sprint(item[name]) != want {
						t.Errorf("%s is %v, and %q in CSV", name, item[name], want)
					}
				}
				if len(item) != len(all[0]) {
					t.Errorf("%d fields, and %d columns", len(item), len(all[0]))
				}
			}
		}
	})

	t.Run("has no pages, and no other form for others", func(t *testing.T) {
		t.Parallel()
		for _, parameter := range []string{"limit", "cursor"} {
			got := f.Do(t, "GET "+usageOfKeys+"?"+parameter+"=1", as, "", "Accept", "text/csv").Want(t, 400, "").Fields()
			if len(got) == 0 || got[0] != parameter+": invalid_parameter" {
				t.Errorf("%v", got)
			}
		}
		for _, accept := range []string{"", "*/*", "application/json", "text/html"} {
			if got := f.Do(t, "GET "+usageOfKeys, as, "", "Accept", accept).Header.Get("Content-Type"); got != "application/json" {
				t.Errorf("%q gets %s", accept, got)
			}
		}
		f.Do(t, "GET "+usageOfKeys+"?step=week", as, "", "Accept", "text/csv").Want(t, 400, "invalid_parameter")
	})

	t.Run("of a large list is complete, over HTTP/1.1 and HTTP/2", func(t *testing.T) {
		t.Parallel()
		f, _, _ := withUsage(t, 400)
		for _, second := range []bool{false, true} {
			if second {
				listening := httptest.NewUnstartedServer(f.Server)
				listening.EnableHTTP2 = true
				listening.StartTLS()
				t.Cleanup(listening.Close)
				f.URL, f.Client = listening.URL, listening.Client()
			}
			long := "&since=" + time.Now().UTC().AddDate(0, 0, -400).Format(time.DateOnly) + "T00:00:00Z"
			answer := f.Do(t, "GET "+usageOfKeys+"?organization=all"+long, servertest.Operator, "", "Accept", "text/csv").Want(t, 200, "")
			all, seen := records(t, answer.Text), map[string]bool{}
			for _, row := range all {
				seen[row[0]+row[4]] = true
			}
			if len(all) != 3*400+1 || len(seen) != len(all) || answer.ProtoMajor != map[bool]int{false: 1, true: 2}[second] {
				t.Errorf("%d lines, %d of them different, over %s", len(all), len(seen), answer.Proto)
			}
		}
	})
}

// failingUsage is a store whose usage fails after some pages.
type failingUsage struct {
	server.Store
	pages  int
	panics bool
}

func (s *failingUsage) KeyUsage(ctx context.Context, organization int64, f access.UsageFilter) (access.UsagePage, error) {
	if s.pages--; s.pages < 0 {
		if s.panics {
			panic("the disk is gone")
		}
		return access.UsagePage{}, errors.New("the disk is gone")
	}
	return s.Store.KeyUsage(ctx, organization, f)
}

func TestCSVThatFails(t *testing.T) {
	t.Parallel()
	var failing *failingUsage
	f, _, _ := withUsage(t, 400, func(o *server.Options) {
		failing = &failingUsage{Store: o.Store}
		o.Store = failing
	})
	since := time.Now().UTC().AddDate(0, 0, -400).Format(time.DateOnly)
	f.Do(t, "GET "+usageOfKeys+"?organization=all&since="+since+"T00:00:00Z", servertest.Operator, "", "Accept", "text/csv").Want(t, 500, "")
	for i, panics := range []bool{false, true} {
		failing.pages, failing.panics = 1, panics
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL+usageOfKeys+"?organization=all&since="+since+"T00:00:00Z", nil)
		r.Header = http.Header{"Accept": {"text/csv"}, "Authorization": {servertest.Operator}}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := answer.Body.Read(make([]byte, 1)); n == 0 {
			t.Fatal(err)
		}
		for err == nil {
			_, err = answer.Body.Read(make([]byte, 4096))
		}
		answer.Body.Close()
		if err.Error() != "unexpected EOF" {
			t.Errorf("panics %t: a part of the list ends with %v", panics, err)
		}
		if log := f.Log.String(); !strings.Contains(log, "the disk is gone") || strings.Count(log, `"code":"aborted"`) != i+1 {
			t.Errorf("panics %t, the log: %s", panics, log)
		}
	}
}

// TestACallerWithoutTheRightReadsNoMoreCSV withdraws the right of a caller who reads the usage of 10,000 keys slowly.
func TestACallerWithoutTheRightReadsNoMoreCSV(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		protocol string
		isStream bool
		all      bool // an operator who is one no more; otherwise a key that is revoked
	}{{"HTTP/1.1", false, false}, {"HTTP/2.0", true, false}, {"HTTP/1.1", false, true}} {
		t.Run(fmt.Sprintf("over %s, all %t", tt.protocol, tt.all), func(t *testing.T) {
			t.Parallel()
			f := servertest.Build(t)
			listening := httptest.NewUnstartedServer(f.Server)
			listening.EnableHTTP2 = tt.isStream
			listening.StartTLS()
			defer listening.Close()
			p, _ := storagetest.Organization(t, f.Store, "a", "enterprise", access.RoleOwner)
			key, credential := storagetest.Key(t, f.Store, p, access.APIKeysRead)
			storagetest.Exec(t, f.Store, `
				WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
				INSERT INTO api_keys (public_id, organization_id, user_id, name, scope, digest, key_prefix, window_id, created_at, metadata, allowed_networks)
				SELECT 'key_' || ?1 || '_' || i, ?1, ?2, 'key', 'events:read', randomblob(32), 'svc_' || i, i, 1, '{}', '' FROM n`, p.Organization.RowID, p.User.RowID)
			storagetest.Exec(t, f.Store, `
				INSERT INTO key_days SELECT k.id, ?1 - d.value, 1, 1, 1
				FROM api_keys k, json_each('[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19]') d`, time.Now().Unix()/86400)
			as, path := servertest.APIKey(credential), usageOfKeys
			withdraw := func() error {
				return f.Store.Directory.RevokeKey(t.Context(), p.Actor("", ""), p.Organization.RowID, key.ID)
			}
			if tt.all {
				member, token := storagetest.Member(t, f.Store, p.Home, "operator", access.RoleOperator)
				as, path = servertest.Bearer(token), usageOfKeys+"?organization=all"
				withdraw = func() error {
					_, err := f.Store.Directory.SetMember(t.Context(), storagetest.Operator(t, f.Store).Actor("", ""), p.Organization.ID, member.User.ID, access.RoleOwner)
					return err
				}
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, listening.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", as)
			r.Header.Set("Accept", "text/csv")
			response, err := listening.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body := bufio.NewReader(response.Body)
			if _, err := body.ReadString('\n'); err != nil || response.Proto != tt.protocol {
				t.Fatal(response.Proto, err)
			}
			if err := withdraw(); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(body)
			if rows := strings.Count(string(rest), "\n"); err == nil || rows > 100_000 {
				t.Errorf("the caller has read %d of 200,000 rows more, error %v", rows, err)
			}
		})
	}
}
