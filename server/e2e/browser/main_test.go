package browser

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
)

var (
	binary    string // use program
	temporary string // a directory for the files of all tests
)

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "3"); err != nil { // a page waits for its frames a third of the time; the command line comes later, so it wins
		panic(err)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	build, _ := debug.ReadBuildInfo()
	if slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		fmt.Println("no browser under the race detector; see doc_test.go")
		return 0
	}
	dir, err := os.MkdirTemp("", "keyhook-browser-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	temporary = dir
	defer stopChromium()
	if binary = os.Getenv("KEYHOOK_BINARY"); binary != "" {
		return m.Run()
	}
	binary = filepath.Join(dir, "keyhook")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "github.com/keyhook/keyhook").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build the program: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// program returns the path of the binary under test. It opens every directory of the source during a test. So the test
// cache records them, and go test repeats these tests after a change of the program.
var program = sync.OnceValue(func() string {
	err := filepath.WalkDir("../../..", func(_ string, entry fs.DirEntry, err error) error {
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

// errMissing marks the lack of a program on this machine. The rest of the text says how to install it.
var errMissing = errors.New("missing")

// require ends a test that cannot run here. That is a failure where every tool must be there.
func require(tb testing.TB, err error) {
	tb.Helper()
	switch {
	case err == nil:
	case errors.Is(err, errMissing) && os.Getenv("KEYHOOK_TEST_REQUIRE") == "":
		tb.Skip(err) // a failure under KEYHOOK_TEST_REQUIRE
	default:
		tb.Fatal(err)
	}
}
