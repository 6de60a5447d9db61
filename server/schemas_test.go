package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/servertest"
)

// optional are the fields of responses that may be absent.
var optional = []string{"Problem.errors", "Problem.conflicting_id", "CheckResult.problem", "CheckResult.warning", "Readiness.settings",
	"DeliveredEvent.test"}

func TestSchemas(t *testing.T) {
	t.Parallel()
	d := written(t)
	t.Run("are valid", func(t *testing.T) {
		for at := range d.Schemas {
			if _, err := d.Compile(at); err != nil {
				t.Error(err)
			}
		}
	})
	schemas := servertest.Object(d.Doc, "components", "schemas")
	for name, schema := range schemas {
		properties := servertest.Object(schema, "properties")
		_, closed := schema.(map[string]any)["additionalProperties"]
		if len(properties) == 0 || closed {
			continue
		}
		t.Run("of a response require all their fields: "+name, func(t *testing.T) {
			required, _ := servertest.Member(schema, "required").([]any)
			for property := range properties {
				if !slices.Contains(required, any(property)) && !slices.Contains(optional, name+"."+property) {
					t.Errorf("%s is not always there", property)
				}
			}
			if len(required) > len(properties) {
				t.Errorf("more is required than there is: %v", required)
			}
		})
	}
	t.Run("of a response tell both ids of an organization", func(t *testing.T) {
		for name, schema := range schemas {
			properties := servertest.Object(schema, "properties")
			_, ours := properties["organization_id"]
			_, theirs := properties["organization_external_id"]
			// a delivered body has the id only, and a request names one of them
			if ours && !theirs && name != "DeliveredEvent" && name != "AccessTokenCreate" {
				t.Errorf("%s has no organization_external_id", name)
			}
		}
	})
	t.Run("of requests refuse other fields, as the handlers do", func(t *testing.T) {
		for _, op := range d.Operations {
			if op.Body == "" {
				continue
			}
			_, body := servertest.Follow(d.Doc, "", servertest.Object(op.Node, "requestBody"))
			at, schema := servertest.Follow(d.Doc, "", servertest.Member(body, "content", "application/json", "schema").(map[string]any))
			if schema["additionalProperties"] != false {
				t.Errorf("%s: %s takes whatever comes", op.Line(), at)
			}
		}
	})
}

func TestExamples(t *testing.T) {
	t.Parallel()
	d := written(t)
	checked := 0
	hold := func(at string, example any) {
		checked++
		if err := d.Validate(at, example); err != nil {
			t.Errorf("the example at %s: %v", at, err)
		}
	}
	var walk func(at string, node any)
	walk = func(at string, node any) {
		switch node := node.(type) {
		case []any:
			for i, child := range node {
				walk(fmt.Sprint(at, "/", i), child)
			}
		case map[string]any:
			if list, ok := node["examples"].([]any); ok { // of a schema
				for _, example := range list {
					hold(at, example)
				}
			}
			schemaAt, schema := servertest.Follow(d.Doc, at+"/schema", servertest.Object(node, "schema"))
			if schema != nil {
				example, own := node["example"]
				if own {
					hold(at+"/schema", example)
				}
				if !own && !hasExample(d, schema) {
					t.Errorf("%s has no example, nor has %s", at, schemaAt)
				}
			}
			for name, child := range node {
				if name != "example" && name != "examples" {
					walk(at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), child)
				}
			}
		}
	}
	walk("", d.Doc)
	if checked < 100 {
		t.Errorf("only %d examples were found", checked)
	}
}

// hasExample reports whether a schema has an example, or is a page of a schema that has one.
func hasExample(d *servertest.Description, schema map[string]any) bool {
	if schema["examples"] == nil && servertest.Object(schema, "properties")["next_cursor"] != nil {
		_, schema = servertest.Follow(d.Doc, "", servertest.Member(schema, "properties", "data", "items").(map[string]any))
	}
	return schema["examples"] != nil
}
