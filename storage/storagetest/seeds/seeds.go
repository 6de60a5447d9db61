// Package seeds runs simulations: each seed in a process of its own, and some of them again, to compare what they did byte for byte. It
// does not know what is simulated. Only tests import it.
package seeds

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

var (
	// For a long run: go test ./dispatch -run Simulation -seeds 1000
	seeds = flag.Int("seeds", 0, "simulations that each test runs, in place of its own number; a tenth under the race detector, and 2 with -short")
	// For a part of a long run: go test ./dispatch -run Simulation -seeds 1000 -from 5000
	firstSeed = flag.Int("from", 0, "the first of these simulations")
	// For a replay: go test ./dispatch -run Simulation -seed 7
	onlySeed = flag.Int("seed", -1, "the only simulation that each test runs, until two traces are the same")
)

// replayedSeeds is how many simulations of each test run again, to compare the traces.
const replayedSeeds = 4

// maxReplays is how often such a simulation is repeated at most.
const maxReplays = 3

// traceFile names the environment variable that makes a process run one simulation. Its value is the file for the trace.
const traceFile = "KEYHOOK_TEST_TRACE"

// HasRaceDetector reports whether the race detector is on. It makes Go's scheduler random, so under it no seed replays.
var HasRaceDetector = sync.OnceValue(func() bool {
	build, _ := debug.ReadBuildInfo()
	return slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
})

// toRun returns the seeds of the simulations that a test runs, which are n without flags.
func toRun(n int) (list []int) {
	n = cmp.Or(*seeds, n)
	switch {
	case *onlySeed >= 0:
		return []int{*onlySeed}
	case testing.Short():
		n = 2
	case HasRaceDetector():
		n = max(n/10, 1)
	}
	for i := range n {
		list = append(list, *firstSeed+i)
	}
	return list
}

// Run runs n simulations of the test, each in a synctest bubble, in a process of its own that has one processor. crypto/rand has one seed
// for the whole process. Some simulations run again and must give the same trace. A failure says how to replay it.
func Run(t *testing.T, n int, run func(t *testing.T, seed int, r *Trace)) {
	t.Helper()
	if file := os.Getenv(traceFile); file != "" {
		cryptotest.SetGlobalRandom(t, uint64(*onlySeed))
		r := &Trace{}
		defer func() { // also if the simulation fails
			if err := os.WriteFile(file, []byte(strings.Join(r.lines, "")), 0o600); err != nil {
				t.Error(err)
			}
		}()
		synctest.Test(t, func(t *testing.T) { run(t, *onlySeed, r) })
		return
	}
	t.Parallel()
	name := t.Name()
	for _, seed := range toRun(n) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			first := runProcess(t, name, seed, "trace")
			t.Logf("%d lines, hash of the trace: %x", strings.Count(first, "\n"), sha256.Sum256([]byte(first)))
			if (seed < replayedSeeds || *onlySeed >= 0) && !HasRaceDetector() {
				replay(t, name, seed, first)
			}
		})
	}
}

// runProcess runs one simulation in a process of its own, and returns its trace.
func runProcess(t *testing.T, test string, seed int, name string) string {
	t.Helper()
	file := filepath.Join(t.ArtifactDir(), name) // kept with -artifacts
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.timeout=5m", "-seed="+strconv.Itoa(seed))
	c.Env = append(os.Environ(), traceFile+"="+file)
	if !HasRaceDetector() {
		c.Env = append(c.Env, "GOMAXPROCS=1", "GOGC=400") // a process lives for seconds, and collections take an eighth of them
	}
	if out, err := c.CombinedOutput(); err != nil {
		dir, _ := os.Getwd()
		t.Fatalf("%v\n%s\nTo replay it, in %s:\n\n\tgo test -run %s -seed %d\n", err, out, dir, test, seed)
	}
	text, err := os.ReadFile(file)
	if err != nil || len(text) == 0 {
		t.Fatalf("the process left no trace: %v", err)
	}
	return string(text)
}

// replay runs a simulation again until two traces are the same. Mostly the second is. On a busy machine, Go may take the processor from a
// goroutine, because it has had it for 10 ms of real time. Then another goroutine goes first, and the trace differs.
func replay(t *testing.T, test string, seed int, first string) {
	t.Helper()
	traces := []string{first}
	for i := range maxReplays {
		again := runProcess(t, test, seed, "replay"+strconv.Itoa(i+1))
		if slices.Contains(traces, again) {
			return
		}
		traces = append(traces, again)
	}
	a, b := strings.Split(traces[0], "\n"), strings.Split(traces[1], "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("the same seed gave two traces. Line %d is in the first:\n%s\nand in the second:\n%s", i+1, a[i], b[i])
		}
	}
	if len(a) != len(b) {
		t.Errorf("the same seed gave two traces, of %d and of %d lines", len(a), len(b))
	}
}

// Trace is what a simulation did, with the virtual times. The methods of a nil Trace do nothing.
type Trace struct {
	mu    sync.Mutex
	lines []string
}

// Note adds a line. Any goroutine may call it.
func (r *Trace) Note(format string, args ...any) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, time.Now().UTC().Format("15:04:05.000000000 ")+fmt.Sprintf(format, args...)+"\n")
}

// Lines returns what was noted so far.
func (r *Trace) Lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// Delay takes up to 10 ms of virtual time, by the name of what is to happen. So two things hardly ever happen at the same instant, at which
// Go wakes goroutines in a random order. Under the race detector it takes no time, because nothing replays there.
func (r *Trace) Delay(name ...any) {
	if r == nil || HasRaceDetector() {
		return
	}
	h := sha256.Sum256(fmt.Append(nil, name...))
	time.Sleep(time.Duration(binary.BigEndian.Uint64(h[:]) % uint64(10*time.Millisecond)))
}

// Jitter returns a source of numbers in [0, 1) from the seed, for any goroutine.
func Jitter(seed int) func() float64 {
	random, turn := rand.New(rand.NewPCG(uint64(seed), 3)), make(chan struct{}, 1)
	return func() float64 {
		turn <- struct{}{}
		defer func() { <-turn }()
		return random.Float64()
	}
}
