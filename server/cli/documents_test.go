package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/cli"
)

var (
	linkOf    = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
	commandOf = regexp.MustCompile(`(?m)(?:^|\| |& |=\S* )(?:go run \.|keyhook) (listen|verify|bench|demo|config)\b([^|&#\n]*)`)
	flagOf    = regexp.MustCompile(`\s(--[a-z][a-z_.-]*)`)
)

// What the documents lead to is there, and so are the flags of the commands that they show.
func TestDocuments(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(top + ".github/*.md")
	if err != nil || len(files) < 5 {
		t.Fatalf("documents %v, error %v", files, err)
	}
	links, commands := 0, 0
	for _, file := range append(files, top+"README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range linkOf.FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s: %v", filepath.Base(file), err)
			}
		}
		for _, m := range commandOf.FindAllStringSubmatch(string(text), -1) {
			_, help, _ := run(t, []string{m[1], "--help"})
			for _, flag := range flagOf.FindAllStringSubmatch(m[2], -1) {
				commands++
				if !strings.Contains(help, flag[1]+" ") {
					t.Errorf("%s: keyhook %s has no %s", filepath.Base(file), m[1], flag[1])
				}
			}
		}
	}
	if links < 10 || commands < 10 {
		t.Errorf("only %d links and %d flags were found", links, commands)
	}
}

func TestTheHelpNamesTheNewcomersCommands(t *testing.T) {
	t.Parallel()
	code, stdout, _ := run(t, nil)
	for _, want := range []string{"listen ", "verify ", "demo "} {
		if code != cli.ExitOK || !strings.Contains(stdout, want) {
			t.Errorf("code %d, no %q in:\n%s", code, want, stdout)
		}
	}
}
