package e2e

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	binary   string // use program
	launcher string // the path of launchScript; empty without the race detector; use typed
)

// underRace reports whether the race detector is on: in these tests, and so in the binary under test.
var underRace = func() bool {
	build, _ := debug.ReadBuildInfo()
	return slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}()

// raceOptions shortens the second that the race detector waits at the end of each process. Without it, the scripts of
// TestScripts take 67 s instead of 7 s.
const raceOptions = "GORACE=atexit_sleep_ms=10"

// inParallel is how many tests run at once: most of them wait more than they work, unless the race detector is on.
var inParallel = map[bool]string{false: "8", true: "4"}[underRace]

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", inParallel); err != nil { // the command line comes later, so it wins
		panic(err)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if binary = os.Getenv("KEYHOOK_BINARY"); binary != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "keyhook-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "keyhook")
	err = errors.Join(os.Chmod(dir, 0o755), build(binary, underRace)) // some tests run it as another user
	if underRace {
		launcher = binary + "-launcher"
		err = errors.Join(err, build(binary+"-plain", false), os.WriteFile(launcher, []byte(strings.ReplaceAll(launchScript, "BINARY", binary)), 0o700)) //nolint:gosec // it is a program
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// launchScript runs a command without the race detector, unless the command does several things at once. With the detector, a process takes a
// tenth of a second more of processor time, and the scripts and documents start 700 of them.
const launchScript = `#!/bin/sh
case $1 in serve | listen | demo | bench) exec BINARY "$@" ;; esac
exec BINARY-plain "$@"
`

// build builds the program as these tests were built, so that the packages come from the cache: with the race detector, and then with
// the flags of .ci/run, which are in E2E_BUILD_FLAGS, or without.
func build(to string, race bool, flags ...string) error {
	args := append([]string{"build", "-buildvcs=false", "-o", to}, flags...)
	if race {
		args = append(append(args, "-race"), strings.Fields(os.Getenv("E2E_BUILD_FLAGS"))...)
	}
	cmd := exec.Command("go", append(args, "github.com/keyhook/keyhook")...)
	if underRace && !race { // as the other steps of .ci/run
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return nil
}

// program returns the path of the binary under test. It opens every directory of the source during a test. So the test
// cache records them, and go test repeats these tests after a change of the program.
var program = sync.OnceValue(func() string {
	err := filepath.WalkDir("../..", func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == ".git" && entry.IsDir() {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		panic(err)
	}
	return binary
})

// typed returns the path of the program for tests that run many commands as people type them.
func typed() string { return cmp.Or(launcher, program()) }
