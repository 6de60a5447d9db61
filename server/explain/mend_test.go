package explain_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/explain"
	"github.com/keyhook/keyhook/storage/webhook"
)

// house is the top of the repository.
const house = "../.."

// walk parses the sources below a folder, without tests, and visits all their nodes.
func walk(t *testing.T, folder string, visit func(path string, n ast.Node)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(house, folder), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			visit(strings.TrimPrefix(filepath.ToSlash(path), house+"/"), n)
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// literals visits the string literals below a folder.
func literals(t *testing.T, folder string, visit func(path, text string)) {
	t.Helper()
	walk(t, folder, func(path string, n ast.Node) {
		if literal, is := n.(*ast.BasicLit); is && literal.Kind == token.STRING {
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			visit(path, text)
		}
	})
}

// noCommands are texts below the server that look like a command.
var noCommands = map[string]string{
	"keyhook canary":        "sealed in each database",
	"keyhook seal v1":       "part of the derivation of a key",
	"keyhook key id v1\x00": "part of the id of a key",
}

// TestNoCommandStandsBelowTheServer: storage and dispatch say in a code what to do, because their texts go out to receivers.
func TestNoCommandStandsBelowTheServer(t *testing.T) {
	t.Parallel()
	command := regexp.MustCompile(`\bkeyhook [a-z]|/api/v1/|(^|[\s"(])--[a-z]`)
	unused := maps.Clone(noCommands)
	for _, folder := range []string{"storage", "dispatch", "limiter"} {
		literals(t, folder, func(path, text string) {
			_, known := noCommands[text]
			delete(unused, text)
			if command.MatchString(text) && !known && !strings.Contains(text, "\n") { // statements have comments
				t.Errorf("%s: %q has a command; give a webhook.Mend, and let server/explain write it", path, text)
			}
		})
	}
	for text := range unused {
		t.Errorf("%q stands nowhere", text)
	}
}

// actions returns the constants of webhook.Action by name.
func actions(t *testing.T) map[string]webhook.Action {
	t.Helper()
	found := map[string]webhook.Action{}
	walk(t, "storage/webhook", func(_ string, n ast.Node) {
		spec, is := n.(*ast.ValueSpec)
		if !is || len(spec.Names) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Action") {
			return
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found[spec.Names[0].Name] = webhook.Action(text)
	})
	if len(found) < 10 {
		t.Fatalf("found %d actions", len(found))
	}
	return found
}

func TestEachActionHasItsCommandAndItsUse(t *testing.T) {
	t.Parallel()
	const vocabulary, table = "storage/webhook/mend.go", "server/explain/mend.go"
	known, used, explained := actions(t), map[string]bool{}, map[string]bool{}
	for _, folder := range []string{"storage", "dispatch", "server"} {
		walk(t, folder, func(path string, n ast.Node) {
			if name, is := n.(*ast.Ident); is && path != vocabulary && path != table {
				used[name.Name] = true
				explained[name.Name] = explained[name.Name] || strings.HasPrefix(path, "server/explain/")
			}
		})
	}
	page, err := os.ReadFile(filepath.Join(house, "server/console/static/pages/event/mend.js"))
	if err != nil {
		t.Fatal(err)
	}
	for name, action := range known {
		command := explain.Command(webhook.Mend{Action: action, Organization: "org_1", Subscription: "sub_1", With: "x"})
		if !strings.HasPrefix(command, "keyhook ") || strings.ToLower(command) != command {
			t.Errorf("the command of %s is %q", action, command)
		}
		if !used[name] {
			t.Errorf("nobody says %s", name)
		}
		hasButton := strings.Contains(string(page), "\n  "+string(action)+":") || strings.Contains(string(page), "action === '"+string(action)+"'")
		if explained[name] && action != webhook.ActionDiscard && !hasButton {
			t.Errorf("the page of an event has no button for %s", action)
		}
	}
}

func TestEachMendOfAFaultHasItsFault(t *testing.T) {
	t.Parallel()
	var codes []string
	walk(t, "server/explain", func(path string, n ast.Node) {
		spec, is := n.(*ast.ValueSpec)
		if !is || spec.Names[0].Name != "faults" {
			return
		}
		for _, row := range spec.Values[0].(*ast.CompositeLit).Elts {
			code, err := strconv.Unquote(row.(*ast.KeyValueExpr).Key.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			codes = append(codes, code)
			if explain.WithMend(code, "No.") == "No." {
				t.Errorf("%s has no mend", code)
			}
		}
	})
	if len(codes) == 0 {
		t.Fatal("found no table")
	}
	for _, folder := range []string{"storage", "server/credential", "server/check"} {
		literals(t, folder, func(_, text string) {
			codes = slices.DeleteFunc(codes, func(code string) bool { return code == text })
		})
	}
	if len(codes) > 0 {
		t.Errorf("no fault has the codes %q", codes)
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]webhook.Mend{
		"":                                    {},
		"keyhook subscriptions recover sub_1": {Action: webhook.ActionRecover, Subscription: "sub_1"},
		"keyhook subscriptions recover sub_1 --since 2000 --organization 'a b'":   {Action: webhook.ActionRecover, Subscription: "sub_1", Organization: "a b", With: "2000"},
		"keyhook organizations update org_1 --plan PLAN":                          {Action: webhook.ActionChangePlan, Organization: "org_1"},
		"keyhook organizations update org_1 --plan gold":                          {Action: webhook.ActionChangePlan, Organization: "org_1", With: "gold"},
		"keyhook queue release":                                                   {Action: webhook.ActionReleaseQueue, Organization: "org_1"},
		"keyhook subscriptions update SUBSCRIPTION --event-types 'ORGANIZATION*'": {Action: webhook.ActionAddEventType, Subscription: "SUBSCRIPTION", With: "ORGANIZATION*"},
	} {
		if got := explain.Command(m); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestALogHasTheCommand(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: explain.LogMend})).
		Warn("x", "mend", webhook.Mend{Action: webhook.ActionRecover, Subscription: "sub_1"}, "n", 1, "e", os.ErrExist)
	if want := `mend="When the receiver works again, run: keyhook subscriptions recover sub_1" n=1 e="file already exists"`; !strings.Contains(log.String(), want) {
		t.Errorf("the log has %s", log.String())
	}
}
