package server_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// TestDescribedLimits sends bodies with one field to each operation, with values on both sides of the described limits. A
// response lists all problems, so it shows which values a handler accepts without creating anything.
func TestDescribedLimits(t *testing.T) {
	t.Parallel()
	d := written(t)
	f := start(t, measured)
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/")
	key, _ := storagetest.Key(t, f.Store, owner, access.EventsRead)
	f.Do(t, "POST /api/v1/permissions/", servertest.Operator, `{"key":"orders:read"}`).Want(t, 201, "")
	f.Do(t, "POST /api/v1/roles/", servertest.Operator, `{"name":"clerk","permissions":[]}`).Want(t, 201, "")
	f.Do(t, "POST /api/v1/plans/", servertest.Operator, `{"name":"gold","api_rate_limit_per_minute":1}`).Want(t, 201, "")

	ids := map[string]string{"{type}": "order.paid", "{key}": "orders:read", "{user_id}": owner.User.ID}
	for prefix, id := range map[string]string{
		"api-keys/": key.ID, "subscriptions/": sub.ID, "organizations/": owner.Organization.ID, "users/": owner.User.ID,
	} {
		ids[prefix+"{id}"] = prefix + id
	}
	ids["plans/{name}"], ids["roles/{name}"] = "plans/gold", "roles/clerk"

	for _, op := range d.Operations {
		if op.Body == "" {
			continue
		}
		path := op.Path
		for name, value := range ids {
			path = strings.ReplaceAll(path, name, value)
		}
		as := servertest.Operator
		if strings.Contains(path, sub.ID) || strings.Contains(path, key.ID) {
			as = servertest.Bearer(token)
		}
		_, body := servertest.Follow(d.Doc, "", servertest.Object(op.Node, "requestBody"))
		_, schema := servertest.Follow(d.Doc, "", servertest.Member(body, "content", "application/json", "schema").(map[string]any))
		// refused returns the refused fields of a body. The body always has one unknown field, so the request creates nothing.
		ask := func(t *testing.T, body map[string]any) []string {
			t.Helper()
			sent := maps.Clone(body)
			sent["no_such_field"] = true
			text, _ := json.Marshal(sent)
			got := f.Do(t, op.Method+" "+path, as, string(text))
			if got.StatusCode == http.StatusRequestEntityTooLarge {
				return slices.Sorted(maps.Keys(body)) // all of them
			}
			return got.Want(t, http.StatusUnprocessableEntity, "").Fields()
		}
		t.Run(op.Line(), func(t *testing.T) {
			t.Run("requires what is described as required", func(t *testing.T) {
				missing := ask(t, map[string]any{})
				required, _ := schema["required"].([]any)
				for name := range servertest.Object(schema, "properties") {
					if slices.Contains(missing, name+": missing") != slices.Contains(required, any(name)) {
						t.Errorf("required are %v, and missing %v", required, missing)
					}
				}
			})
			for name, property := range servertest.Object(schema, "properties") {
				_, property := servertest.Follow(d.Doc, "", property.(map[string]any))
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
