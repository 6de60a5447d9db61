package webhooks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	known := map[string]string{"as": servertest.Bearer(token), "org": owner.Organization.ID}
	const path = "/api/v1/webhooks/subscriptions/"
	f.Run(t, known, []servertest.Scenario{
		servertest.Shows("are created, and show their secret once", "POST "+path,
			`{"url":"https://example.com/hook?a=b","event_types":["user.created","order.*","user.created"],"description":"line\nbreak"}`, 201,
			`"url":"https://example.com/hook?a=b"`, `"event_types":["user.created","order.*"]`, `"is_active":true`, `"status":"healthy"`,
			`"consecutive_failures":0`, `"last_error":null`, `"description":"line\nbreak"`, `"rate_limit_per_second":null`, `"pending_deliveries":0`, `"organization_id":"{org}"`,
			`"disabled_at":null`, `"last_success_at":null`, `"last_failure_at":null`, `"secret":"whsec_`, "Location: /api/v1/webhooks/subscriptions/sub_"),
		servertest.OK("are read without the secret", "GET "+path+"{last}/", "", 200, `"id":"{last}"`),
		servertest.OK("are listed", "GET "+path, "", 200, `"id":"{last}"`),
		servertest.OK("are listed by status", "GET "+path+"?status=healthy", "", 200, `"id":"{last}"`),
		servertest.OK("are not listed by another status", "GET "+path+"?status=failing", "", 200, `"data":[]`),
		servertest.OK("are listed by several statuses", "GET "+path+"?status=failing,healthy,failing", "", 200, `"id":"{last}"`),
		servertest.OK("are not listed by several other statuses", "GET "+path+"?status=failing,disabled", "", 200, `"data":[]`),
		servertest.Bad("are not listed by an unknown status", "GET "+path+"?status=active", "", 400, "invalid_parameter", "must be one or more of healthy, failing, disabled, separated by commas"),
		servertest.Bad("are not listed by an unknown status among others", "GET "+path+"?status=failing,active", "", 400, "invalid_parameter", "status"),
		servertest.Bad("are not listed by an empty status", "GET "+path+"?status=", "", 400, "invalid_parameter", "status"),
		servertest.OK("are listed if they are not paused", "GET "+path+"?paused=false", "", 200, `"id":"{last}"`),
		servertest.OK("are not among the paused ones then", "GET "+path+"?paused=true", "", 200, `"data":[]`),
		servertest.Bad("are not listed by an unknown value of paused", "GET "+path+"?paused=1", "", 400, "invalid_parameter", "paused"),
		servertest.Bad("are not listed by a status and an empty one", "GET "+path+"?status=failing,", "", 400, "invalid_parameter", "status"),
		servertest.OK("keep fields that a change does not name", "PATCH "+path+"{last}/", `{"description":""}`, 200, `"description":""`, `"event_types":["user.created","order.*"]`, `"url":"https://example.com/hook?a=b"`),
		servertest.OK("may select every event type", "PATCH "+path+"{last}", `{"event_types":[]}`, 200, `"event_types":[]`),
		servertest.OK("accept an empty change", "PATCH "+path+"{last}/", `{}`, 200, `"event_types":[]`),
		servertest.OK("can have a rate limit", "PATCH "+path+"{last}/", `{"rate_limit_per_second":10}`, 200, `"rate_limit_per_second":10,`, `"status":"healthy"`),
		servertest.OK("keep their rate limit when another field changes", "PATCH "+path+"{last}/", `{"description":"slow"}`, 200, `"rate_limit_per_second":10,`),
		servertest.OK("show their rate limit", "GET "+path+"{last}/", "", 200, `"rate_limit_per_second":10,`),
		servertest.OK("are listed with their rate limit", "GET "+path, "", 200, `"rate_limit_per_second":10,`),
		servertest.Bad("keep their rate limit if a change is refused", "PATCH "+path+"{last}/", `{"rate_limit_per_second":0}`, 422, "validation_failed",
			`"field":"rate_limit_per_second","code":"out_of_range","message":"This must be a whole number from 1 to 10000, without quotes."`),
		servertest.OK("can become ordered", "PATCH "+path+"{last}/", `{"ordered":true}`, 200, `"ordered":true,`),
		servertest.OK("stay ordered when another field changes", "PATCH "+path+"{last}/", `{"description":"slow"}`, 200, `"ordered":true,`),
		servertest.OK("show that they are ordered", "GET "+path+"{last}/", "", 200, `"ordered":true,`),
		servertest.OK("can become unordered", "PATCH "+path+"{last}/", `{"ordered":false}`, 200, `"ordered":false,`),
		servertest.Bad("do not become ordered by another value", "PATCH "+path+"{last}/", `{"ordered":null}`, 422, "validation_failed", `"field":"ordered"`),
		servertest.OK("can lose their rate limit", "PATCH "+path+"{last}/", `{"rate_limit_per_second":null}`, 200, `"rate_limit_per_second":null`),
		servertest.OK("can be deactivated by their owner", "PATCH "+path+"{last}/", `{"is_active":false}`, 200, `"is_active":false`, `"status":"disabled"`, `"last_error":"deactivated by acme-owner"`, `"disabled_at":"20`),
		servertest.OK("can be activated again", "PATCH "+path+"{last}/", `{"is_active":true}`, 200, `"is_active":true`, `"status":"healthy"`, `"last_error":null`, `"disabled_at":null`),
		servertest.Bad("have no other field", "PATCH "+path+"{last}/", `{"status":"healthy","secret":"x"}`, 422, "validation_failed", `"field":"status","code":"unknown_field"`, `"field":"secret","code":"unknown_field"`),
		servertest.Shows("get a new secret", "POST "+path+"{last}/rotate-secret/", "", 200, `"secret":"whsec_`),
		servertest.Bad("get no other secret while the old one signs", "POST "+path+"{last}/rotate-secret/", `{"overlap_seconds":0}`, 409, "overlap_in_progress", "still signs until 20", `\"force\": true`, "--force"),
		servertest.Bad("get no other secret without force", "POST "+path+"{last}/rotate-secret/", `{"force":false}`, 409, "overlap_in_progress"),
		servertest.Bad("take only true or false for force", "POST "+path+"{last}/rotate-secret/", `{"force":"yes"}`, 422, "validation_failed", `"field":"force","code":"wrong_type"`),
		servertest.Shows("get a new secret at once with force", "POST "+path+"{last}/rotate-secret", `{"overlap_seconds":0,"force":true}`, 200, `"secret":"whsec_`),
		servertest.Shows("get a new secret again when no old one signs", "POST "+path+"{last}/rotate-secret", `{"overlap_seconds":0}`, 200, `"secret":"whsec_`),
		servertest.Bad("keep the old secret for at most a week", "POST "+path+"{last}/rotate-secret/", `{"overlap_seconds":604801}`, 422, "validation_failed", `"field":"overlap_seconds","code":"out_of_range"`),
		servertest.Bad("do not accept a negative overlap", "POST "+path+"{last}/rotate-secret/", `{"overlap_seconds":-1}`, 422, "validation_failed", "out_of_range"),
		servertest.Bad("keep the old secret for whole seconds", "POST "+path+"{last}/rotate-secret/", `{"overlap_seconds":1.5}`, 422, "validation_failed", "wrong_type"),
		servertest.Bad("have no other field to rotate by", "POST "+path+"{last}/rotate-secret/", `{"key":"mine"}`, 422, "validation_failed", "unknown_field"),
		servertest.OK("are removed", "DELETE "+path+"{last}/", "", 204),
		servertest.Bad("are not found after that", "GET "+path+"{last}/", "", 404, "not_found"),
		servertest.Bad("are not removed again", "DELETE "+path+"{last}/", "", 404, "not_found"),
		servertest.Shows("can be created inactive", "POST "+path, `{"url":"https://example.com/","is_active":false}`, 201, `"status":"disabled"`),
		servertest.Shows("can be created with a rate limit", "POST "+path, `{"url":"https://example.com/","rate_limit_per_second":10000}`, 201, `"rate_limit_per_second":10000,`),
		servertest.Shows("can be created without a rate limit", "POST "+path, `{"url":"https://example.com/","rate_limit_per_second":null}`, 201, `"rate_limit_per_second":null`),
		servertest.Bad("are not created with an invalid rate limit", "POST "+path, `{"url":"https://example.com/","rate_limit_per_second":"10"}`, 422, "validation_failed",
			`"field":"rate_limit_per_second","code":"wrong_type","message":"This must be a whole number from 1 to 10000, without quotes."`),
		servertest.Bad("have a rate limit under that name only", "POST "+path, `{"url":"https://example.com/","rate_limit":10}`, 422, "validation_failed", `"field":"rate_limit","code":"unknown_field"`),
	})
}

func TestSubscriptionFields(t *testing.T) {
	t.Parallel()
	f := servertest.Start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/")
	types := func(n, different int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"type.n%d"`, i%different))
		}
		return `{"event_types":[` + strings.Join(list, ",") + `]`
	}
	long := strings.Repeat("a", 128)
	for name, tt := range map[string]struct{ body, problems string }{
		"http":                                   {`{"url":"http://example.com/"`, "url: https_required"},
		"another scheme":                         {`{"url":"ftp://example.com/"`, "url: https_required"},
		"no scheme":                              {`{"url":"example.com"`, "url: https_required"},
		"no host":                                {`{"url":"https:///path"`, "url: host_required"},
		"loopback":                               {`{"url":"https://127.0.0.1/"`, "url: address_not_allowed"},
		"loopback by name":                       {`{"url":"https://localhost/"`, "url: address_not_allowed"},
		"the metadata service":                   {`{"url":"https://169.254.169.254/latest"`, "url: address_not_allowed"},
		"an IPv6 loopback":                       {`{"url":"https://[::1]/"`, "url: address_not_allowed"},
		"a password":                             {`{"url":"https://user:pass@example.com/"`, "url: userinfo_not_allowed"},
		"2049 characters":                        {`{"url":"https://example.com/` + strings.Repeat("x", 2049-20) + `"`, "url: too_long"},
		"a space in the URL":                     {`{"url":"https://example.com/a b"`, "url: invalid_url"},
		"NUL in the URL":                         {`{"url":"https://example.com/\u0000"`, "url: invalid_url"},
		"a hundred and one types":                {types(101, 101), "event_types: too_many"},
		"a type of 129 characters":               {`{"event_types":["` + long + `a"]`, "event_types.0: invalid"},
		"a type in capitals":                     {`{"event_types":["User"]`, "event_types.0: invalid"},
		"a lone star":                            {`{"event_types":["*"]`, "event_types.0: invalid"},
		"a star in the middle":                   {`{"event_types":["a.*.b"]`, "event_types.0: invalid"},
		"a type with a space":                    {`{"event_types":["a b"]`, "event_types.0: invalid"},
		"a number among types":                   {`{"event_types":["ok",1,"NOT OK"]`, "event_types.1: wrong_type event_types.2: invalid"},
		"no type":                                {`{"event_types":[""]`, "event_types.0: invalid"},
		"501 characters about it":                {`{"description":"` + strings.Repeat("x", 501) + `"`, "description: too_long"},
		"a control character":                    {`{"description":"\u0007"`, "description: invalid"},
		"zero attempts a second":                 {`{"rate_limit_per_second":0`, "rate_limit_per_second: out_of_range"},
		"a negative number of attempts a second": {`{"rate_limit_per_second":-1`, "rate_limit_per_second: out_of_range"},
		"10001 a second":                         {`{"rate_limit_per_second":10001`, "rate_limit_per_second: out_of_range"},
		"too many to count a second":             {`{"rate_limit_per_second":99999999999999999999`, "rate_limit_per_second: out_of_range"},
		"one and a half a second":                {`{"rate_limit_per_second":1.5`, "rate_limit_per_second: wrong_type"},
		"1e3 a second":                           {`{"rate_limit_per_second":1e3`, "rate_limit_per_second: wrong_type"},
		"10 a second as text":                    {`{"rate_limit_per_second":"10"`, "rate_limit_per_second: wrong_type"},
		"a rate limit that is true":              {`{"rate_limit_per_second":true`, "rate_limit_per_second: wrong_type"},
		"1 a second":                             {`{"rate_limit_per_second":1`, ""},
		"10000 a second":                         {`{"rate_limit_per_second":10000`, ""},
		"no limit a second":                      {`{"rate_limit_per_second":null`, ""},
		"a hundred types":                        {types(100, 100), ""},
		"one type a thousand times":              {types(1000, 1), ""},
		"a type of 128 characters":               {`{"event_types":["` + long + `"]`, ""},
		"500 characters about it":                {`{"description":"` + strings.Repeat("ü", 500) + `"`, ""},
		"a host in capitals, a port":             {`{"url":"https://EXAMPLE.com:8443/Path"`, ""},
	} {
		t.Run("that are changed: "+name, func(t *testing.T) {
			got := f.Do(t, "PATCH /api/v1/webhooks/subscriptions/"+sub.ID+"/", servertest.Bearer(token), tt.body+"}")
			if tt.problems == "" {
				got.Want(t, 200, "")
				return
			}
			code, _ := strings.CutPrefix(tt.problems, "url: ")
			if code != "https_required" && code != "address_not_allowed" { // these two alone are also the code of the whole problem
				code = "validation_failed"
			}
			got.Want(t, 422, code)
			if fields := strings.Join(got.Fields(), " "); fields != tt.problems {
				t.Errorf("problems %q, want %q", fields, tt.problems)
			}
		})
	}
}
