package apply_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/cli/apply"
)

func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ file, want string }{
		"a tab as indentation":      {"plans:\n\t- {name: x}\n", "standard input:2: this is not valid YAML: found character that cannot start any token"},
		"a second document":         {"plans: []\n---\nplans: []\n", "standard input:2: a second document begins here"},
		"a merge key":               {"plans:\n  - &a {name: x, api_rate_limit_per_minute: 1}\n  - <<: *a\n    name: y\n", "standard input:3: this must be the name of a field"},
		"a merge key in a value":    {"event_types:\n  - type: a\n    description: x\n    example: {x: &b {y: 1}, z: {<<: *b}}\n", "standard input:4: example: z: a key must be a text; write out what an alias or << stands for"},
		"a section twice":           {"plans: []\nplans: []\n", `standard input:2: mapping key "plans" already defined at line 1`},
		"a field twice":             {"plans:\n  - name: x\n    name: y\n", `standard input:3: mapping key "name" already defined at line 2`},
		"an object twice":           {"plans:\n  - &a {name: x, api_rate_limit_per_minute: 1}\n  - *a\n", "standard input:3: plan x: This object is in the document already, see line 2"},
		"yes instead of true":       {"plans:\n  - name: x\n    webhooks: yes\n", "standard input:3: webhooks: "},
		"a number as a name":        {"organizations:\n  - external_id: 7\n", "standard input:2: external_id: This must be a string"},
		"null as a name":            {"plans:\n  - name: null\n", "standard input:2: name: This must be a string"},
		"null as a list":            {"roles:\n  - name: x\n    permissions: null\n", "standard input:3: permissions: "},
		"null as event types":       {"subscriptions:\n  - organization: x\n    external_id: y\n    url: https://a.example/\n    event_types: null\n", "standard input:5: event_types: "},
		"null as true or false":     {"plans:\n  - name: x\n    webhooks: null\n", "standard input:3: webhooks: "},
		"a blank limit":             {"plans:\n  - name: x\n    api_rate_limit_per_minute:\n", "standard input:3: api_rate_limit_per_minute: there is no value"},
		"an object as a value":      {"plans:\n  - name: {a: b}\n", "standard input:2: name: This must be a string"},
		"a name twice":              {"event_types:\n  - type: a\n    description: x\n    example: {x: 1, x: 2}\n", "standard input:4: mapping key \"x\" already defined at line 4"},
		"an example inside itself":  {"event_types:\n  - type: a\n    description: x\n    example: &e {x: *e}\n", "standard input: this is not valid YAML: anchor 'e' value contains itself"},
		"a filter inside itself":    {"subscriptions:\n  - organization: x\n    filter: &f [{path: x, op: eq, value: *f}]\n", "standard input: this is not valid YAML: anchor 'f' value contains itself"},
		"a list inside itself":      {"plans: &a [*a]\n", "standard input"},
		"an unknown anchor":         {"plans: *hidden\n", "this is not valid YAML: unknown anchor '…' referenced"},
		"a section that is no list": {"plans: {name: x}\n", "standard input:1: plans must be a list"},
		"no section":                {"- x\n", "standard input:1: the file must begin with a section"},
		"nothing but a comment":     {"# nothing\n", "standard input: the file is empty"},
		"lines that end with CR LF": {"plans:\r\n  - name: x\r\n    colour: red\r\n", "standard input:3: colour: This field is unknown"},
		"a byte order mark":         {"\ufeffplans:\n  - colour: red\n", "standard input:2: colour: This field is unknown"},
	} {
		t.Run("are found with their lines: "+name, func(t *testing.T) {
			t.Parallel()
			f := serve(t)
			_, err := f.apply(t, test.file, apply.Options{Prune: true})
			if _, isMistake := errors.AsType[apply.Problems](err); !isMistake || !strings.Contains(err.Error(), test.want) || f.writes.Load() > 0 {
				t.Errorf("error %v, want %s; %d writes", err, test.want, f.writes.Load())
			}
		})
	}
	const ada = "users:\n  - {external_id: ada, name: Ada, email: ada@example.com}\n"
	refuses := func(t *testing.T, f *target, file, want string) {
		t.Helper()
		before := f.writes.Load()
		_, err := f.apply(t, file, apply.Options{Prune: true})
		if err == nil || !strings.Contains(err.Error(), want) || f.writes.Load() != before {
			t.Errorf("error %v, want %s; %d writes", err, want, f.writes.Load()-before)
		}
	}
	t.Run("are two users with one e-mail address", func(t *testing.T) {
		t.Parallel()
		refuses(t, serve(t), ada+"  - {external_id: eve, name: Eve, email: ADA@example.com}\n",
			"standard input:3: email: Another user has this value; choose a new one. See line 2.")
	})
	t.Run("are a user with the e-mail address of another user of the server", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		if _, err := f.apply(t, ada, apply.Options{}); err != nil {
			t.Fatal(err)
		}
		refuses(t, f, strings.Replace(ada, "external_id: ada", "external_id: eve", 1),
			"standard input:2: email: Another user has this value; choose a new one. See usr_")
		moved := "users:\n  - {external_id: ada, name: Ada, email: new@example.com}\n  - {external_id: eve, name: Eve, email: ada@example.com}\n"
		if printed, err := f.apply(t, moved, apply.Options{}); err != nil || !strings.HasSuffix(printed, "= 0 unchanged\n") {
			t.Errorf("error %v, printed:\n%s", err, printed)
		}
	})
	t.Run("are a role with a new permission, which an API key can never grant", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		const scope = "platform:read platform:write platform:act_as webhooks:read webhooks:write"
		key, _ := f.do(t, "POST", "api-keys/", `{"name":"narrow","scope":"`+scope+`"}`)["key"].(string)
		operator := f.Authorization
		f.Authorization = "ApiKey " + key
		const file = "permissions: [{key: \"a:b\"}]\nroles:\n  - {name: clerk, permissions: [\"a:b\"]}\n"
		refuses(t, f, file, "standard input:3: role clerk: You can grant only permissions that you have, and you lack a:b")
		f.Authorization = operator
		if _, err := f.apply(t, file, apply.Options{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("are not a subscription of an organization that is named by its id and gets a plan with webhooks", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		f.do(t, "POST", "plans/", `{"name":"none","api_rate_limit_per_minute":1}`)
		id := f.do(t, "POST", "organizations/", `{"name":"By hand","plan":"none","external_id":"hand"}`)["id"]
		file := fmt.Sprintf(`
organizations: [{external_id: hand, name: By hand, plan: growth}]
subscriptions: [{organization: %s, external_id: x, url: "https://example.com/"}]
`, id)
		if _, err := f.apply(t, file, apply.Options{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("are not two objects whose names differ only in the place of a slash", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		file := `
organizations: [{external_id: a, name: A, plan: growth}, {external_id: a/b, name: B, plan: growth}]
subscriptions:
  - {organization: a, external_id: b/c, url: "https://example.com/1", secret_file: secret}
  - {organization: a/b, external_id: c, url: "https://example.com/2", secret_file: secret}
`
		dir := t.TempDir()
		name := filepath.Join(dir, "keyhook.yaml")
		for name, text := range map[string]string{name: file, filepath.Join(dir, "secret"): "an-old-secret-of-32-characters!!\n"} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []string{"= 0 unchanged\n", "= 4 unchanged\n"} {
			if printed, err := f.apply(t, "", apply.Options{File: name, Prune: true}); err != nil || !strings.HasSuffix(printed, want) {
				t.Errorf("error %v, want %s, printed:\n%s", err, want, printed)
			}
		}
	})
	t.Run("are a file of secrets with the name -, which is not the standard input", func(t *testing.T) {
		t.Parallel()
		refuses(t, serve(t), strings.ReplaceAll(small, "event_types: [order.*, order.paid]", `secret_file: "-"`),
			"standard input:11: secret_file: cannot read the file: no such file or directory")
	})
}
