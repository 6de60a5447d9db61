package about_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/about"
)

// run runs a command and returns its standard output.
func run(t *testing.T, cmd *cobra.Command, args ...string) string {
	t.Helper()
	var stdout strings.Builder
	cmd.SetOut(&stdout)
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return stdout.String()
}

// brokenPipe is the output of a command whose reader has gone.
type brokenPipe struct{}

var errBroken = errors.New("broken pipe")

func (brokenPipe) Write([]byte) (int, error) { return 0, errBroken }

func TestVersion(t *testing.T) {
	t.Parallel()
	t.Run("names Go and the modules of the driver", func(t *testing.T) {
		t.Parallel()
		stdout := run(t, about.NewVersion())
		for _, want := range []string{"keyhook", "commit", "date", runtime.Version(), "sqlite ", "modernc.org/sqlite", "modernc.org/libc"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("no %s in:\n%s", want, stdout)
			}
		}
	})
}

func TestLicensesAreInTheBinary(t *testing.T) {
	t.Parallel()
	stdout := run(t, about.NewLicenses())
	for _, want := range []string{"\npreact ", "\nmodernc.org/sqlite v"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in:\n%s", want, stdout[:min(4000, len(stdout))])
		}
	}
}

func TestAnOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"licenses"}} {
		root := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(about.NewVersion(), about.NewLicenses())
		root.SetOut(brokenPipe{})
		root.SetArgs(args)
		if err := root.Execute(); !errors.Is(err, errBroken) {
			t.Errorf("%v: error %v", args, err)
		}
	}
}
