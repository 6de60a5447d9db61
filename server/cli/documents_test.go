package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/cli"
)

var (
	commandOf = regexp.MustCompile(`(?m)(?:^|\| |& |=\S* )(?:keyhook|\./keyhook) (apply|listen|verify|bench|demo|config|backup|restore|rekey|doctor|healthcheck)\b([^|&#\n]*)`)
	flagOf    = regexp.MustCompile(`\s(--[a-z][a-z_.-]*)`)
)

// TestCommandsOfDocuments checks that the commands in the documents have their flags, also those that no test runs.
func TestCommandsOfDocuments(t *testing.T) {
	t.Parallel()
	files := []string{top + "README.md"}
	for _, pattern := range []string{".github/*.md", "server/docs/*.md"} {
		found, err := filepath.Glob(top + pattern)
		if err != nil || len(found) < 2 {
			t.Fatalf("documents %v, error %v", found, err)
		}
		files = append(files, found...)
	}
	commands := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
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
	if commands < 10 {
		t.Errorf("only %d flags were found", commands)
	}
}

// TestExitCodesAreDocumented compares the table of the document with the constants.
func TestExitCodesAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(top + "server/docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, n)
	}
	want := []int{
		cli.ExitOK, cli.ExitFailure, cli.ExitUsage, cli.ExitNewer, cli.ExitFile, cli.ExitKey, cli.ExitInUse, cli.ExitPort,
		cli.ExitPlace, cli.ExitDisk,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("codes (-want +got):\n%s", d)
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
