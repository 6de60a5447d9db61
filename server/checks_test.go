package server_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestChecksAgree puts keys into random states with several faults at once, and compares the results of everything that checks
// keys: an explanation, which counts nothing, and a request, a proxy and a back end, each of which counts once.
func TestChecksAgree(t *testing.T) {
	t.Parallel()
	f := start(t)
	limits := map[string]string{"null": "null", "none": "0", "one": "1", "many": "50"}
	for name, limit := range limits {
		f.Plan(t, name, true, false, limit)
		f.Plan(t, "closed-"+name, false, false, limit)
	}
	permissions := []string{access.EventsRead, access.AuditRead, access.APIKeysRead, access.WebhooksRead}
	paths := map[string]string{
		access.EventsRead: "/api/v1/events/", access.AuditRead: "/api/v1/audit-events/", access.APIKeysRead: "/api/v1/api-keys/",
		access.WebhooksRead: "/api/v1/webhooks/subscriptions/",
	}
	const seed = 4
	random := rand.New(rand.NewPCG(seed, seed))
	maybe := func(oneIn int) bool { return random.IntN(oneIn) == 0 }
	seen := map[string]int{}

	for i := range 120 {
		name := fmt.Sprintf("organization-%d", i)
		owner, token := storagetest.Organization(t, f.Store, name, "growth", access.RoleOwner)
		var scope []string
		for _, p := range permissions {
			if maybe(2) {
				scope = append(scope, p)
			}
		}
		key, raw := storagetest.Key(t, f.Store, owner, append(scope, access.EventsWrite)...)
		member := "/api/v1/organizations/" + owner.Home.ID + "/members/" + owner.User.ID + "/"
		var state []string
		do := func(line, as, body string) {
			f.Do(t, line, as, body)
			state = append(state, line)
		}
		if maybe(8) {
			do("POST /api/v1/api-keys/"+key.ID+"/rotate/", servertest.Bearer(token), fmt.Sprintf(`{"grace_seconds":%d}`, random.IntN(2)*3600))
		}
		if maybe(10) {
			do("DELETE /api/v1/api-keys/"+key.ID+"/", servertest.Bearer(token), "")
		}
		switch random.IntN(8) {
		case 0:
			do("PATCH /api/v1/users/"+owner.User.ID+"/", servertest.Operator, `{"is_active":false}`)
		case 1:
			do("DELETE "+member, servertest.Operator, "")
		case 2:
			do("PUT "+member, servertest.Operator, `{"role":"member"}`)
		}
		plan := []string{"null", "none", "one", "many", "many", "growth", "closed-one", "closed-null", "closed-none"}[random.IntN(9)]
		f.Move(t, owner.Home.ID, plan)

		asked := permissions[random.IntN(len(permissions))]
		line := "GET " + paths[asked]
		checkers := map[string]func() (code string, counted servertest.Response){
			"a request": func() (string, servertest.Response) {
				got := f.Do(t, line, servertest.APIKey(raw), "")
				return got.Field("code"), got
			},
			"a proxy": func() (string, servertest.Response) {
				got := f.Do(t, "PATCH "+gate+"forward/"+asked+"/", servertest.APIKey(raw), "")
				return got.Field("code"), got
			},
			"a back end": func() (string, servertest.Response) {
				got := f.Do(t, "POST /api/v1/auth/verify/", servertest.Operator, `{"key":"`+raw.Reveal()+`","permission":"`+asked+`"}`)
				return strings.TrimPrefix(got.Field("code"), "valid"), got
			},
		}
		for checker, ask := range checkers {
			before := f.explain(t, servertest.Operator, raw.Reveal(), line)
			if byID := f.explain(t, servertest.Operator, key.ID, "POST /of/another/api", asked); byID.Code != before.Code || byID.Allowed != before.Allowed {
				t.Errorf("%s: by id it is explanation as %s, by key as %s", state, byID.Code, before.Code)
			}
			reported, _ := ask()
			if reported == "" {
				reported = "valid"
			}
			if reported != before.Code || before.Allowed != (reported == "valid") {
				t.Errorf("%s under %s: the result of %s is %s, the explanation %s", state, plan, checker, reported, before.verdicts())
			}
			after := f.explain(t, servertest.Operator, raw.Reveal(), line)
			counts := reported == "valid" || reported == "permission_denied"
			if spent := left(before) - left(after); limits[plan] != "null" && (spent != 0) != counts || spent < 0 || spent > 1 {
				t.Errorf("%s under %s: the result of %s is %s, and it counted %d requests", state, plan, checker, reported, spent)
			}
			seen[reported]++
		}
	}
	for _, code := range []string{"valid", "key_revoked", "creator_inactive", "plan_capability_required", "rate_limited", "permission_denied"} {
		if seen[code] < 5 {
			t.Errorf("%s occurred only %d times: %v", code, seen[code], seen)
		}
	}
}

// left returns how many requests are left by an explanation; 0 if it did not reach that check.
func left(e explanation) (n int) {
	_, _ = fmt.Sscanf(e.detail("rate_limit"), "%d of", &n) // no limit has no number
	return n
}
