package server_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestDescribedLimits sends bodies with one field to each operation, with values on both sides of the described limits. A
// response lists all problems, so it shows which values a handler accepts without creating anything.
func TestDescribedLimits(t *testing.T) {
	t.Parallel()
	d := written(t)
	f := start(t, measured)
	owner, token := storagetest.Organization(t, f.store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.store, owner, "https://example.com/")
	key, _ := storagetest.Key(t, f.store, owner, access.EventsRead)
	f.do(t, call{"POST /api/v1/permissions/", operator, `{"key":"orders:read"}`, nil}).want(t, 201, "")
	f.do(t, call{"POST /api/v1/roles/", operator, `{"name":"clerk","permissions":[]}`, nil}).want(t, 201, "")
	f.do(t, call{"POST /api/v1/plans/", operator, `{"name":"gold","api_rate_limit_per_minute":1}`, nil}).want(t, 201, "")

	ids := map[string]string{"{key}": "orders:read", "{user_id}": owner.User.ID}
	for prefix, id := range map[string]string{
		"api-keys/": key.ID, "subscriptions/": sub.ID, "organizations/": owner.Organization.ID, "users/": owner.User.ID,
	} {
		ids[prefix+"{id}"] = prefix + id
	}
	ids["plans/{name}"], ids["roles/{name}"] = "plans/gold", "roles/clerk"

	for _, op := range d.operations {
		if op.body == nil {
			continue
		}
		path := op.path
		for name, value := range ids {
			path = strings.ReplaceAll(path, name, value)
		}
		as := operator
		if strings.Contains(path, sub.ID) || strings.Contains(path, key.ID) {
			as = bearer(token)
		}
		_, body := follow(d.doc, "", object(op.node, "requestBody"))
		_, schema := follow(d.doc, "", member(body, "content", "application/json", "schema").(map[string]any))
		// refused returns the refused fields of a body. The body always has one unknown field, so the request creates nothing.
		ask := func(t *testing.T, body map[string]any) []string {
			t.Helper()
			sent := maps.Clone(body)
			sent["no_such_field"] = true
			text, _ := json.Marshal(sent)
			got := f.do(t, call{op.method + " " + path, as, string(text), nil})
			if got.StatusCode == http.StatusRequestEntityTooLarge {
				return slices.Sorted(maps.Keys(body)) // all of them
			}
			return got.want(t, http.StatusUnprocessableEntity, "").fields()
		}
		t.Run(op.line(), func(t *testing.T) {
			t.Run("requires what is described as required", func(t *testing.T) {
				missing := ask(t, map[string]any{})
				required, _ := schema["required"].([]any)
				for name := range object(schema, "properties") {
					if slices.Contains(missing, name+": missing") != slices.Contains(required, any(name)) {
						t.Errorf("required are %v, and missing %v", required, missing)
					}
				}
			})
			for name, property := range object(schema, "properties") {
				_, property := follow(d.doc, "", property.(map[string]any))
				t.Run("accepts the described values of "+name, func(t *testing.T) {
					taken, refused := sides(property)
					isRefused := func(value any) (refused, forItsForm bool) {
						for _, problem := range ask(t, map[string]any{name: value}) {
							field, code, _ := strings.Cut(problem, ": ")
							if field == name || strings.HasPrefix(field, name+".") {
								refused, forItsForm = true, forItsForm || !strings.HasPrefix(code, "unknown_")
							}
						}
						return refused, forItsForm
					}
					for _, value := range taken {
						if _, forItsForm := isRefused(value); forItsForm {
							t.Errorf("%.80v is refused", value)
						}
					}
					for _, value := range refused {
						if refused, _ := isRefused(value); !refused {
							t.Errorf("%.80v is taken", value)
						}
					}
				})
			}
		})
	}
}

// sides returns values that a schema accepts and values that it refuses, as far as the schema tells.
func sides(schema map[string]any) (taken, refused []any) {
	types, _ := schema["type"].([]any)
	if one, ok := schema["type"].(string); ok {
		types = []any{one}
	}
	if slices.Contains(types, "null") {
		taken = append(taken, nil)
	} else {
		refused = append(refused, nil)
	}
	examples, _ := schema["examples"].([]any)
	values, _ := schema["enum"].([]any)
	taken = append(append(taken, examples...), values...)
	if len(values) > 0 {
		refused = append(refused, "none-of-these")
	}
	other := map[any]any{"string": 17, "integer": "17", "boolean": "true", "array": "a", "object": "a"}
	refused = append(refused, other[types[0]])
	if least, ok := schema["minimum"].(float64); ok {
		most := schema["maximum"].(float64)
		taken, refused = append(taken, least, most), append(refused, least-1, most+1, least+0.5)
	}
	if most, ok := schema["maxLength"].(float64); ok {
		refused = append(refused, strings.Repeat("a", int(most)+1))
	}
	if _, ok := schema["minLength"]; ok {
		refused = append(refused, "")
	}
	if schema["format"] == "date-time" {
		refused = append(refused, "tomorrow", "2030-01-31")
	}
	if schema["pattern"] != nil {
		refused = append(refused, "No Such Form")
	}
	return taken, refused
}
