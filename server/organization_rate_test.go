package server_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestOrganizationRate creates and revokes keys in turn. Each key has a window of its own, and all together have another one.
func TestOrganizationRate(t *testing.T) {
	t.Parallel()
	const verify = "POST /api/v1/auth/verify/"
	// rounds makes three requests with each of five new keys. It returns how many succeeded, and the last key and response.
	rounds := func(t *testing.T, f *testServer, owner access.Principal, ask func(access.Credential) servertest.Response) (passed int, last access.Credential, refusal servertest.Response) {
		t.Helper()
		for range 5 {
			key, raw := storagetest.Key(t, f.Store, owner, access.EventsRead)
			for range 3 {
				if got := ask(raw); got.StatusCode == 200 && got.Field("code") != "rate_limited" {
					passed++
				} else {
					refusal = got
				}
			}
			if last = raw; passed < 6 || refusal.Response == nil {
				if err := f.Store.Directory.RevokeKey(t.Context(), owner.Actor("", ""), owner.Home.RowID, key.ID); err != nil {
					t.Fatal(err)
				}
				continue
			}
			break // the last key lives, so that it can be asked about
		}
		return passed, last, refusal
	}
	for name, ask := range map[string]func(t *testing.T, f *testServer) func(access.Credential) servertest.Response{
		"requests": func(t *testing.T, f *testServer) func(access.Credential) servertest.Response {
			return func(raw access.Credential) servertest.Response {
				return f.Do(t, "GET /api/v1/events/", servertest.APIKey(raw), "")
			}
		},
		"a proxy's questions": func(t *testing.T, f *testServer) func(access.Credential) servertest.Response {
			return func(raw access.Credential) servertest.Response {
				return f.Do(t, "GET "+gate+"forward/", servertest.APIKey(raw), "")
			}
		},
		"a back end's questions": func(t *testing.T, f *testServer) func(access.Credential) servertest.Response {
			return func(raw access.Credential) servertest.Response {
				return f.Do(t, verify, servertest.Operator, `{"key":"`+raw.Reveal()+`"}`)
			}
		},
	} {
		t.Run(name+" are counted for all keys together", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := build(t)
				f.Do(t, "POST /api/v1/plans/", servertest.Operator,
					`{"name":"pair","api_keys":true,"webhooks":true,"api_rate_limit_per_minute":3,"max_api_keys":2}`).Want(t, 201, "")
				owner, _ := storagetest.Organization(t, f.Store, "acme", "pair", access.RoleOwner)
				other, _ := storagetest.Organization(t, f.Store, "other", "pair", access.RoleOwner)
				_, neighbour := storagetest.Key(t, f.Store, other, access.EventsRead)

				passed, last, refusal := rounds(t, f, owner, ask(t, f))
				if passed != 6 {
					t.Errorf("%d requests passed, want 6", passed)
				}
				if refusal.Response == nil {
					t.Fatal("no request was refused")
				}
				if !strings.HasPrefix(name, "a back end") {
					if !strings.Contains(refusal.Text, "together") {
						t.Errorf("refused with %s", refusal.Text)
					}
					if retry := refusal.Header.Get("Retry-After"); retry != "60" {
						t.Errorf("Retry-After is %q", retry)
					}
					if own := refusal.Header.Get("X-RateLimit-Limit"); own != "3" {
						t.Errorf("X-RateLimit-Limit is %q, want that of the key", own)
					}
				}
				_, fresh := storagetest.Key(t, f.Store, owner, access.EventsRead)
				colleague, _ := storagetest.Member(t, f.Store, owner.Organization, "colleague", access.RoleOwner)
				f.Do(t, "PATCH /api/v1/plans/pair/", servertest.Operator, `{"max_api_keys":null}`).Want(t, 200, "")
				_, another := storagetest.Key(t, f.Store, colleague, access.EventsRead)
				f.Do(t, "PATCH /api/v1/plans/pair/", servertest.Operator, `{"max_api_keys":2}`).Want(t, 200, "")
				for _, raw := range []access.Credential{last, fresh, another} {
					e := f.explain(t, servertest.Operator, raw.Reveal(), "GET /api/v1/events/")
					if e.Allowed || e.Code != "rate_limited" {
						t.Errorf("explained as %s", e.verdicts())
					}
				}
				f.Do(t, "GET /api/v1/events/", servertest.APIKey(neighbour), "").Want(t, 200, "")
				time.Sleep(time.Minute)
				if e := f.explain(t, servertest.Operator, fresh.Reveal(), "GET /api/v1/events/"); !e.Allowed {
					t.Errorf("a minute later it is explained as %s", e.verdicts())
				}
				f.Do(t, "GET /api/v1/events/", servertest.APIKey(fresh), "").Want(t, 200, "")
			})
		})
	}
}

// TestRefusedByTheOrganization asks with a new key while the window of its organization has nothing left.
func TestRefusedByTheOrganization(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		f.Do(t, "POST /api/v1/plans/", servertest.Operator,
			`{"name":"one","api_keys":true,"webhooks":true,"api_rate_limit_per_minute":3,"max_api_keys":1}`).Want(t, 201, "")
		owner, _ := storagetest.Organization(t, f.Store, "acme", "one", access.RoleOwner)
		ask := func(raw access.Credential) servertest.Response {
			return f.Do(t, "GET /api/v1/events/", servertest.APIKey(raw), "")
		}
		key, raw := storagetest.Key(t, f.Store, owner, access.EventsRead)
		for range 3 {
			ask(raw).Want(t, 200, "")
		}
		if err := f.Store.Directory.RevokeKey(t.Context(), owner.Actor("", ""), owner.Home.RowID, key.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(35 * time.Second)
		_, fresh := storagetest.Key(t, f.Store, owner, access.EventsRead)
		for range 5 {
			if got := ask(fresh).Want(t, 429, "rate_limited"); got.Header.Get("Retry-After") != "25" || got.Header.Get("X-RateLimit-Remaining") != "3" {
				t.Errorf("refused with %v", got.Header)
			}
		}
		verdict := f.Do(t, "POST /api/v1/auth/verify/", servertest.Operator, `{"key":"`+fresh.Reveal()+`"}`)
		if want := `"remaining":0,"reset_at":"` + time.Now().Add(25*time.Second).UTC().Format("2006-01-02T15:04:05"); !strings.Contains(verdict.Text, want) {
			t.Errorf("the verdict is %s, and its window is not the one that refuses: %s", verdict.Text, want)
		}
		time.Sleep(25 * time.Second)
		for range 3 {
			ask(fresh).Want(t, 200, "")
		}
	})
}

// TestOrganizationRateOfPlans computes the limit of all keys of an organization together.
func TestOrganizationRateOfPlans(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rate int64
		keys *int64
		want int64
	}{{600, new(int64(50)), 30_000}, {600, nil, 6_000_000}, {600, new(int64(0)), 600}, {0, nil, 0}} {
		plan := access.Plan{RateLimitPerMinute: &tt.rate, MaxAPIKeys: tt.keys}
		if got := plan.OrganizationRate(); got != tt.want {
			t.Errorf("%s: %d, want %d", fmt.Sprint(tt.rate, tt.keys), got, tt.want)
		}
	}
}
