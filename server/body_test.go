package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestEveryBody sends bodies that no route may accept to every route that reads a body.
func TestEveryBody(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOperator)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/")
	key, _ := storagetest.Key(t, f.Store, owner, access.EventsRead)
	f.Do(t, "POST /api/v1/permissions/", servertest.Operator, `{"key":"orders:read"}`).Want(t, 201, "")
	f.Do(t, "POST /api/v1/roles/", servertest.Operator, `{"name":"clerk","permissions":[]}`).Want(t, 201, "")
	real := strings.NewReplacer(
		"api-keys/{id}", "api-keys/"+key.ID, "subscriptions/{id}", "subscriptions/"+sub.ID, "organizations/{id}", "organizations/"+owner.Organization.ID,
		"users/{id}", "users/"+owner.User.ID, "{user_id}", owner.User.ID,
		"plans/{name}", "plans/growth", "roles/{name}", "roles/clerk", "permissions/{key}", "permissions/orders:read", "{type}", "order.paid",
	)
	optional := []string{
		"POST /api/v1/organizations/{id}/portal-links/",
		"POST /api/v1/webhooks/subscriptions/{id}/rotate-secret/", "POST /api/v1/api-keys/{id}/rotate/",
		"POST /api/v1/webhooks/subscriptions/{id}/recover/", "POST /api/v1/webhooks/subscriptions/{id}/discard/",
		"POST /api/v1/webhooks/subscriptions/{id}/test/", "POST /api/v1/queue/hold/", "POST /api/v1/backups/",
		// These have no field.
		"POST /api/v1/webhooks/subscriptions/{id}/deliveries/{attempt_id}/redeliver/",
		"POST /api/v1/queue/release/", "POST /api/v1/queue/discard/", "POST /api/v1/clock/accept/",
	}
	nested := func(depth int) string {
		return `{"a":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}`
	}
	bodies := map[string]struct {
		body   string
		header []string
		status int
		code   string
	}{
		"text":                               {`hello`, nil, 400, "invalid_json"},
		"half an object":                     {`{"name":"x"`, nil, 400, "invalid_json"},
		"an array":                           {`[]`, nil, 400, "invalid_json"},
		"a string":                           {`"x"`, nil, 400, "invalid_json"},
		"null":                               {`null`, nil, 400, "invalid_json"},
		"a number":                           {`1`, nil, 400, "invalid_json"},
		"white space":                        {"  \n", nil, 400, "invalid_json"},
		"an object and more":                 {`{} {}`, nil, 400, "invalid_json"},
		"an object and a brace":              {`{}}`, nil, 400, "invalid_json"},
		"a name that repeats":                {`{"x":1,"x":2}`, nil, 400, "invalid_json"},
		"a name that repeats deep inside":    {`{"data":{"x":[{"y":1,"y":2}]}}`, nil, 400, "invalid_json"},
		"a name that repeats with an escape": {`{"x":1,"\u0078":2}`, nil, 400, "invalid_json"},
		"a byte order mark":                  {"\ufeff{}", nil, 400, "invalid_json"},
		"invalid UTF-8":                      {"{\"name\":\"\xff\"}", nil, 400, "invalid_json"},
		"half a surrogate":                   {`{"name":"\ud800"}`, nil, 400, "invalid_json"},
		"a raw NUL":                          {"{\"name\":\"\x00\"}", nil, 400, "invalid_json"},
		"a comment":                          {`{/**/}`, nil, 400, "invalid_json"},
		"a trailing comma":                   {`{"x":1,}`, nil, 400, "invalid_json"},
		"single quotes":                      {`{'x':1}`, nil, 400, "invalid_json"},
		"NaN":                                {`{"x":NaN}`, nil, 400, "invalid_json"},
		"101 levels":                         {nested(100), nil, 400, "invalid_json"},
		"ten thousand levels":                {nested(10_000), nil, 400, "invalid_json"},
		"an unknown field":                   {`{"nobody":1}`, nil, 422, "validation_failed"},
		"names in another case":              {`{"NAME":1,"Type":1,"URL":1,"Is_Active":true}`, nil, 422, "validation_failed"},
		"another media type":                 {`{}`, []string{"Content-Type", "text/plain"}, 415, "unsupported_media_type"},
		"a form":                             {`a=b`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"},
		"no media type":                      {`{}`, []string{"Content-Type", ""}, 415, "unsupported_media_type"},
		"a malformed media type":             {`{}`, []string{"Content-Type", "application/json; charset"}, 415, "unsupported_media_type"},
		"another charset":                    {`{}`, []string{"Content-Type", "application/json; charset=latin1"}, 415, "unsupported_media_type"},
		"compressed":                         {`{}`, []string{"Content-Encoding", "gzip"}, 415, "unsupported_media_type"},
		"a body that is too large":           {`{"x":"` + strings.Repeat("x", 257<<10) + `"}`, nil, 413, "too_large"},
	}
	for _, r := range f.Server.Routes() {
		if r.Proxied || r.Method == http.MethodGet || r.Method == http.MethodDelete {
			continue
		}
		t.Run("of "+line(r), func(t *testing.T) {
			at := r.Method + " " + real.Replace(r.Pattern)
			for name, tt := range bodies {
				if tt.status == 413 && (strings.HasSuffix(at, "/batch/") || strings.HasSuffix(at, "/apply/")) {
					continue // takes more: TestEventSize
				}
				got := f.Do(t, at, servertest.Bearer(token), tt.body, tt.header...)
				if got.StatusCode != tt.status || got.Field("code") != tt.code && tt.status != 422 {
					t.Errorf("%s: status %d, want %d %s: %s", name, got.StatusCode, tt.status, tt.code, got.Text)
				}
			}
			if strings.HasSuffix(r.Pattern, "/erase/") || strings.HasSuffix(r.Pattern, "/close/") {
				return // without a body, they would end the credential of the other requests: TestRemovals
			}
			if got := f.Do(t, at, servertest.Bearer(token), ""); !slices.Contains(optional, line(r)) {
				got.Want(t, 400, "body_required")
			}
		})
	}
}

// TestEveryField gives every field of every body a value of every wrong type.
func TestEveryField(t *testing.T) {
	t.Parallel()
	f := start(t)
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOperator)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/")
	key, _ := storagetest.Key(t, f.Store, owner, access.EventsRead)
	f.Do(t, "POST /api/v1/permissions/", servertest.Operator, `{"key":"orders:read"}`).Want(t, 201, "")
	f.Do(t, "POST /api/v1/roles/", servertest.Operator, `{"name":"clerk","permissions":[]}`).Want(t, 201, "")
	as := []string{"X-Organization-Id", owner.Organization.ID}
	const subs, orgs, users = "/api/v1/webhooks/subscriptions/", "/api/v1/organizations/", "/api/v1/users/"
	kinds := map[string]string{
		"string": `"text"`, "number": `7`, "fraction": `1.5`, "boolean": `true`, "object": `{}`, "array": `[1]`, "null": `null`,
	}
	for line, fields := range map[string]map[string][]string{ // the valid kinds of each field
		"POST /api/v1/api-keys/":                                            {"name": {"string"}, "scope": {"string"}, "expires_at": {"string", "null"}, "external_id": {"string", "null"}},
		"POST /api/v1/api-keys/" + key.ID + "/rotate/":                      {"grace_seconds": {"number"}},
		"POST " + subs:                                                      {"url": {"string", "null"}, "event_types": {"array"}, "is_active": {"boolean"}, "description": {"string"}},
		"PATCH " + subs + sub.ID + "/":                                      {"url": {"string", "null"}, "event_types": {"array"}, "is_active": {"boolean"}, "description": {"string"}},
		"POST " + subs + sub.ID + "/rotate-secret/":                         {"overlap_seconds": {"number"}, "force": {"boolean"}},
		"POST " + subs + sub.ID + "/replay/":                                {"since": {"string"}, "until": {"string"}, "event_types": {"array"}, "only": {"string"}, "dry_run": {"boolean"}},
		"POST /api/v1/events/":                                              {"type": {"string"}, "data": {"object"}, "idempotency_key": {"string"}},
		"POST /api/v1/events/batch/":                                        {"events": {"array"}},
		"POST " + subs + sub.ID + "/test/":                                  {"event_type": {"string"}},
		"PUT /api/v1/event-types/order.paid/":                               {"description": {"string"}, "group": {"string", "null"}, "example": {"object", "null"}, "schema": {"object", "null"}},
		"POST /api/v1/queue/hold/":                                          {"reason": {"string"}},
		"POST /api/v1/backups/":                                             {"file": {"string"}, "keep": {"number"}},
		"POST /api/v1/plans/":                                               {"name": {"string"}, "api_keys": {"boolean"}, "webhooks": {"boolean"}, "api_rate_limit_per_minute": {"number", "null"}},
		"PATCH /api/v1/plans/growth/":                                       {"api_keys": {"boolean"}, "webhooks": {"boolean"}, "api_rate_limit_per_minute": {"number", "null"}},
		"POST /api/v1/permissions/":                                         {"key": {"string"}, "description": {"string"}},
		"PATCH /api/v1/permissions/orders:read":                             {"description": {"string"}},
		"POST /api/v1/roles/":                                               {"name": {"string"}, "permissions": {"array"}},
		"PATCH /api/v1/roles/clerk/":                                        {"permissions": {"array"}},
		"POST " + orgs:                                                      {"name": {"string"}, "plan": {"string"}, "external_id": {"string", "null"}},
		"PATCH " + orgs + owner.Organization.ID:                             {"name": {"string"}, "plan": {"string"}, "external_id": {"string", "null"}},
		"PUT " + orgs + owner.Organization.ID + "/members/" + owner.User.ID: {"role": {"string"}},
		"POST " + users:                                                     {"email": {"string"}, "name": {"string"}, "external_id": {"string", "null"}, "is_active": {"boolean"}},
		"PATCH " + users + owner.User.ID:                                    {"email": {"string", "null"}, "name": {"string"}, "external_id": {"string", "null"}, "is_active": {"boolean"}},
		"POST " + users + owner.User.ID + "/access-tokens/":                 {"organization_id": {"string"}, "name": {"string"}, "expires_at": {"string", "null"}},
	} {
		for field, right := range fields {
			t.Run("of "+line+" refuses another type in "+field, func(t *testing.T) {
				for kind, value := range kinds {
					if slices.Contains(right, kind) {
						continue
					}
					got := f.Do(t, line, servertest.Operator, `{"`+field+`":`+value+`}`, as...).Want(t, 422, "")
					wrong := slices.ContainsFunc(got.Fields(), func(s string) bool {
						return s == field+": wrong_type" || s == field+".0: wrong_type"
					})
					if !wrong {
						t.Errorf("%s: %s", kind, got.Text)
					}
				}
			})
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	f := start(t)
	got := f.Do(t, "POST /api/v1/webhooks/subscriptions/", servertest.Operator,
		`{"event_types":["ok","Not.OK","also not"],"is_active":"yes","colour":"red","description":"\u0000"}`).Want(t, 422, "validation_failed")
	want := []string{
		"url: missing", "event_types.1: invalid", "event_types.2: invalid", "description: invalid", "is_active: wrong_type", "colour: unknown_field",
	}
	if diff := cmp.Diff(want, got.Fields()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	got = f.Do(t, "POST /api/v1/plans/", servertest.Operator, `{"name":"x","api_rate_limit_per_minute":1,"`+strings.Repeat("ü", 5000)+`":1}`).Want(t, 422, "")
	if diff := cmp.Diff([]string{strings.Repeat("ü", 100) + "…: unknown_field"}, got.Fields()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	var many strings.Builder
	many.WriteString("{")
	for i := range 900 {
		many.WriteString(`"f` + strings.Repeat("x", i%5) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)) + `":1,`)
	}
	got = f.Do(t, "POST /api/v1/plans/", servertest.Operator, many.String()+`"z":1}`).Want(t, 422, "validation_failed")
	if reported := got.Fields(); len(reported) != 101 || reported[100] != ": too_many_problems" || !strings.Contains(got.Text, "There are more problems; only the first 100 are listed.") {
		t.Errorf("%d problems are listed, the last is %s", len(reported), reported[len(reported)-1])
	}
}

func TestNamesGivenTwice(t *testing.T) {
	t.Parallel()
	f := start(t)
	for body, want := range map[string]string{
		`{"type":"a","data":{},"type":"b"}`:                      "type",
		`{"type":"a","\u0074ype":"b"}`:                           "type",
		`{"type":"a","data":{"list":[1,{"a/b~c":1,"a/b~c":2}]}}`: "data.list.1.a/b~c",
		`{"data":{"\u001b[31m\u202e":1,"\u001b[31m\u202e":2}}`:   "data.\ufffd[31m\ufffd",
		`{"":1,"":2}`: "",
		`{"` + strings.Repeat("ü", 5000) + `":1,"` + strings.Repeat("ü", 5000) + `":1}`:                  strings.Repeat("ü", 200) + "…",
		strings.Repeat(`{"lengthy":`, 90) + `{"x":1,"x":1}` + strings.Repeat("}", 90):                    strings.Repeat("lengthy.", 25) + "…",
		strings.Repeat(`{"`+strings.Repeat("y", 300)+`":`, 9) + `{"x":1,"x":1}` + strings.Repeat("}", 9): strings.Repeat("y", 200) + "…",
		`{"events":[{"type":"a","data":{}},{"type":"a","data":{"deep":{"n":1,"n":2}}}]}`:                 "events.1.data.deep.n",
	} {
		got := f.Do(t, "POST /api/v1/events/batch/", servertest.Operator, body).Want(t, 400, "invalid_json")
		if diff := cmp.Diff("The body has \""+want+"\" twice in one object; send each name once.", got.Field("detail")); diff != "" {
			t.Errorf("%.80s (-want +got):\n%s", body, diff)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	f := start(t)
	for name, tt := range map[string]struct{ given, want, code string }{
		"a name":                       {"Billing", "Billing", ""},
		"blanks around it":             {" \t Billing\u00a0\n", "Billing", ""},
		"a hundred characters":         {strings.Repeat("ü", 100), strings.Repeat("ü", 100), ""},
		"a hundred, and blanks":        {" " + strings.Repeat("ü", 100) + "\n", strings.Repeat("ü", 100), ""},
		"a hundred and one characters": {strings.Repeat("ü", 101), "", "too_long"},
		"ten thousand characters":      {strings.Repeat("x", 10_000), "", "too_long"},
		"an empty name":                {"", "", "blank"},
		"only blanks":                  {"   ", "", "blank"},
		"a line break":                 {"a\r\nb", "", "invalid"},
		"NUL":                          {"a\x00b", "", "invalid"},
		"an escape character":          {"a\x1b[31mb", "", "invalid"},
		"a C1 control character":       {"a\u0085b", "", "invalid"},
		"HTML":                         {`<script>alert("x")</script>&amp;`, `<script>alert("x")</script>&amp;`, ""},
		"writing from right to left":   {"שלום", "שלום", ""},
		"a reversed order":             {"\u202eabc\u202c", "", "invalid"},
		"a zero-width space":           {"a\u200bb", "", "invalid"},
		"an emoji":                     {"👩‍👩‍👧", "👩‍👩‍👧", ""},
	} {
		t.Run("of keys: "+name, func(t *testing.T) {
			given, _ := json.Marshal(tt.given)
			got := f.Do(t, "POST /api/v1/api-keys/", servertest.Operator, `{"scope":"audit:read","name":`+string(given)+`}`)
			if tt.code != "" {
				got.Want(t, 422, "")
				if diff := cmp.Diff([]string{"name: " + tt.code}, got.Fields()); diff != "" {
					t.Errorf("problems (-want +got):\n%s", diff)
				}
				return
			}
			got.Want(t, 201, "")
			if diff := cmp.Diff(tt.want, got.Field("name")); diff != "" {
				t.Errorf("name (-want +got):\n%s", diff)
			}
			if strings.Contains(got.Text, `\u003c`) {
				t.Errorf("escaped as if for HTML: %s", got.Text)
			}
		})
	}
}

// TestEveryNameRefusesInvisibleCharacters tries all fields that people type and others read.
func TestEveryNameRefusesInvisibleCharacters(t *testing.T) {
	t.Parallel()
	f := start(t)
	user := f.Do(t, "POST /api/v1/users/", servertest.Operator, `{"email":"ada@example.com","name":"Ada"}`).Want(t, 201, "").Field("id")
	org := f.Do(t, "POST /api/v1/organizations/", servertest.Operator, `{"name":"Acme","plan":"growth"}`).Want(t, 201, "").Field("id")
	sub := f.Do(t, "POST /api/v1/webhooks/subscriptions/", servertest.Operator, `{"url":"https://example.com/"}`).Want(t, 201, "").Field("id")
	f.Do(t, "POST /api/v1/permissions/", servertest.Operator, `{"key":"orders:read","description":""}`).Want(t, 201, "")
	for request, fields := range map[string]map[string]string{ // the other fields by the tested field
		"POST /api/v1/organizations/":                       {"name": `"plan":"growth"`, "external_id": `"plan":"growth","name":"x"`, "plan": `"name":"x"`},
		"PATCH /api/v1/organizations/" + org + "/":          {"name": "", "external_id": ""},
		"POST /api/v1/users/":                               {"name": `"email":"x@example.com"`, "email": "", "external_id": `"email":"x@example.com"`},
		"PATCH /api/v1/users/" + user + "/":                 {"name": "", "email": "", "external_id": ""},
		"POST /api/v1/api-keys/":                            {"name": `"scope":"audit:read"`},
		"POST /api/v1/users/" + user + "/access-tokens/":    {"name": `"organization_id":"` + org + `"`},
		"POST /api/v1/webhooks/subscriptions/":              {"description": `"url":"https://example.com/"`},
		"PATCH /api/v1/webhooks/subscriptions/" + sub + "/": {"description": ""},
		"POST /api/v1/plans/":                               {"name": `"api_keys":true,"webhooks":true,"api_rate_limit_per_minute":1`},
		"POST /api/v1/roles/":                               {"name": `"permissions":[]`},
		"POST /api/v1/permissions/":                         {"key": "", "description": `"key":"orders:write"`},
		"PATCH /api/v1/permissions/orders:read/":            {"description": ""},
		"POST /api/v1/queue/hold/":                          {"reason": ""},
		"POST /api/v1/events/":                              {"idempotency_key": `"type":"a","data":{}`, "type": `"data":{}`},
	} {
		for field, others := range fields {
			for _, r := range "\u202e\u2066\u200b\u2060\ufeff\U000E0041" {
				body := fmt.Sprintf(`{"%s":"a%cb"`, field, r)
				if others != "" {
					body += "," + others
				}
				got := f.Do(t, request, servertest.Operator, body+"}")
				if got.StatusCode != 422 || !slices.ContainsFunc(got.Fields(), func(p string) bool { return strings.HasPrefix(p, field+": ") }) {
					t.Errorf("%s %s with %U: %d %s", request, field, r, got.StatusCode, got.Text)
				}
			}
		}
	}
}
