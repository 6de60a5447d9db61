package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keyhook/keyhook/server/config"
)

func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"a misspelt setting", "webhooks:\n  tiemout: 5s\n", `keyhook.yaml:2: "webhooks.tiemout" is not a setting; did you mean webhooks.timeout?`},
		{"a misspelt section", "webhook:\n  timeout: 5s\n", "did you mean webhooks?"},
		{"a name nothing like a setting", "server:\n  zzzzzzzzzz: 1\n", `"server.zzzzzzzzzz" is not a setting; remove it`},
		{"a section in capitals", "Server:\n  listen: :1\n", "did you mean server?"},
		{"a setting in capitals", "server:\n  Listen: :1\n", "did you mean server.listen?"},
		{"a setting with its dot", "server.listen: :1\n", "write server: and below it, indented, listen:"},
		{"a setting below itself", "server:\n  server.listen: :1\n", "is not a setting"},
		{"a bare number for a duration", "webhooks:\n  timeout: 5\n", `keyhook.yaml:2): "5" has no unit; write "5s"`},
		{"a null", "webhooks:\n  max_attempts: null\n", "has no value"},
		{"a tilde", "webhooks:\n  max_attempts: ~\n", "has no value"},
		{"nothing after a setting", "webhooks:\n  max_attempts:\n", "has no value"},
		{"nothing after a secret", "encryption:\n  key:\n", `or "" for none, or remove the line`},
		{"nothing after the file of a secret", "encryption:\n  key_file:\n", `or "" for none, or remove the line`},
		{"nothing after a setting that must have a value", "keys:\n  prefix:\n", "begins with #), or remove the line"},
		{"nothing after a list", "egress:\n  allowed_networks:\n", "begins with #), or remove the line"},
		{"a null item", "egress:\n  allowed_networks: [10.0.0.1, null]\n", "item of the list has no value"},
		{"a null section", "webhooks: null\n", "is a section"},
		{"a scalar for a section", "webhooks: 5\n", "is a section"},
		{"a list for a section", "webhooks: [1]\n", "is a section"},
		{"a list for a scalar", "webhooks:\n  max_attempts: [5]\n", "not a single plain value"},
		{"a map for a scalar", "webhooks:\n  max_attempts: {a: 5}\n", "not a single plain value"},
		{"a scalar for a list", "egress:\n  allowed_networks: 10.0.0.0/8\n", "is a list"},
		{"a map for a list", "egress:\n  allowed_networks: {a: b}\n", "not a single plain value"},
		{"a list in a list", "egress:\n  allowed_networks: [[10.0.0.1]]\n", "not a single plain value"},
		{"a setting twice", "keys:\n  prefix: a\n  prefix: b\n", "keyhook.yaml:3): the same name is in line 2 already"},
		{"a section twice", "keys:\n  prefix: a\nlog:\n  level: info\nkeys:\n  prefix: b\n", "keyhook.yaml:5): the same name is in line 1 already"},
		{"an alias", "keys:\n  prefix: &a svc\nlog:\n  level: *a\n", "not a single plain value"},
		{"a merge", "keys: &a\n  prefix: svc\nlog:\n  <<: *a\n", "not a plain name"},
		{"a tag", "keys:\n  prefix: !x svc\n", "not a single plain value"},
		{"a key that is a list", "? [a]\n: b\n", "not a plain name"},
		{"a key that is a number", "5: b\n", "not a plain name"},
		{"a scalar alone", "hello\n", "is not a mapping"},
		{"a list alone", "- hello\n", "is not a mapping"},
		{"a second document", "log:\n  level: info\n---\nlog:\n  level: warn\n", "second document"},
		{"broken syntax", "log: [\n", "is not valid YAML"},
		{"broken syntax in a second document", "log:\n  level: info\n---\n[", "is not valid YAML"},
		{"a tab", "log:\n\tlevel: info\n", "is not valid YAML"},
		{"no text at all", "\x00\x01\x02", "is not valid YAML"},
		{"an octal number", "webhooks:\n  max_attempts: 010\n", "not a whole number"},
		{"yes for true", "egress:\n  allow_http: yes\n", "write true or false"},
		{"a negative duration", "webhooks:\n  timeout: -5s\n", "out of range"},
		{"deep nesting", strings.Repeat("[", 20000), "is not valid YAML"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := loadFile(t, tt.text)
			if p := problemsOf(t, err); len(p) != 1 || !strings.Contains(p[0].String(), tt.want) {
				t.Errorf("got %v, want one problem with %q", err, tt.want)
			}
		})
	}
}

// FuzzLoad loads any text as a file. Either Load returns Problems, which show no secret. Or the output of `config show` loads
// again to the same configuration.
func FuzzLoad(f *testing.F) {
	for _, text := range []string{
		"", "# comment\n", "webhooks:\n  timeout: 5s\n", "webhooks: {timeout: 5, max_attempts: 0x5}\n", "a: &a [*a]\n",
		"server:\n  listen: :0\n  trusted_proxies: [10.0.0.0/8, '::1']\n", "log:\n  <<: {level: info}\n", "---\n---\n",
		"bootstrap:\n  token: " + canary + "\n", "bootstrap:\n  token: *" + canary + "\n", "? |\n  x\n: y\n", "!!binary x: !!null y",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := write(t, "keyhook.yaml", text, 0o600)
		c, err := config.Load(parse(t, "--config", path))
		if err != nil {
			if strings.Contains(problemsOf(t, err).Error(), canary) {
				t.Errorf("a secret is shown: %v", err)
			}
			return
		}
		list, err := config.Sources(parse(t, "--config", path))
		if err != nil {
			t.Fatal(err)
		}
		var args []string
		for _, s := range list {
			if !s.Secret {
				args = append(args, "--"+s.Flag+"="+s.Value)
			}
		}
		again, err := config.Load(parse(t, args...))
		again.Encryption, again.Bootstrap = c.Encryption, c.Bootstrap
		if diff := cmp.Diff(c, again, asValues, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("loaded again, error %v (-first +again):\n%s", err, diff)
		}
	})
}
