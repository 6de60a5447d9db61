package dispatch_test

import (
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
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

	"github.com/keyhook/keyhook/storage/webhook"
)

// A simulation replays: the same seed gives the same trace, byte for byte. For this,
//
//   - the steps, the jitter of retries and crypto/rand (so ids, secrets and signatures) come from the seed. crypto/rand has one seed for
//     the whole process, so each simulation runs in a process of its own. It has one processor;
//   - each request, each response and each call of the store by the dispatcher first takes up to 10 ms of virtual time, computed from
//     its name to the nanosecond. So two of them hardly ever happen at the same instant, at which Go wakes goroutines in a random order;
//   - the harness waits until all goroutines rest between changes that it makes at the same instant;
//   - the harness sorts the list of lanes, which has the random order of a map.
//
// The trace contains the steps, the requests with their headers, signatures and hashes of the bodies, the responses, and at the end
// the records of the attempts, all with virtual times.
//
// The trace does not contain the log, and not the order of reads and of upkeep in the store at the same instant. Nothing makes that
// order repeatable. Each call of the store has its own instant, so calls of the dispatcher never share a commit here. Only events that
// are published at once share one (see publishSome). Under the race detector a seed does not replay, because the detector makes Go's
// scheduler random. So there nothing is delayed, all processors run, and calls share commits as they do in production.

var (
	// For a long run: go test ./dispatch -run Simulation -seeds 1000
	seeds = flag.Int("seeds", 50, "simulations that each test runs; a fifth of them under the race detector, and 2 with -short")
	// For a replay: go test ./dispatch -run Simulation -seed 7
	onlySeed = flag.Int("seed", -1, "the only simulation that each test runs, twice")
)

// replayedSeeds is how many simulations of each test run twice, to compare the traces.
const replayedSeeds = 4

// traceFile names the environment variable that makes a process run one simulation. Its value is the file for the trace.
const traceFile = "KEYHOOK_TEST_TRACE"

var hasRaceDetector = sync.OnceValue(func() bool {
	build, _ := debug.ReadBuildInfo()
	return slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
})

// seedsToRun returns the seeds of the simulations that a test runs.
func seedsToRun() (seedsOfTest []int) {
	n := *seeds
	switch {
	case *onlySeed >= 0:
		return []int{*onlySeed}
	case testing.Short():
		n = 2
	case hasRaceDetector():
		n = max(n/5, 1)
	}
	for seed := range n {
		seedsOfTest = append(seedsOfTest, seed)
	}
	return seedsOfTest
}

// simulate runs simulations of the test, each in a process of its own. Some run twice and must give the same trace.
func simulate(t *testing.T, run func(t *testing.T, seed int, r *trace)) {
	t.Helper()
	if file := os.Getenv(traceFile); file != "" {
		cryptotest.SetGlobalRandom(t, uint64(*onlySeed))
		r := &trace{}
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
	for _, seed := range seedsToRun() {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			first := runProcess(t, name, seed, "trace")
			t.Logf("%d lines, hash of the trace: %x", strings.Count(first, "\n"), sha256.Sum256([]byte(first)))
			if (seed < replayedSeeds || *onlySeed >= 0) && !hasRaceDetector() {
				compareTraces(t, first, runProcess(t, name, seed, "replay"))
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
	if !hasRaceDetector() {
		c.Env = append(c.Env, "GOMAXPROCS=1")
	}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\nTo replay it:\n\n\tgo test ./dispatch -run Simulation -seed %d\n", err, out, seed)
	}
	text, err := os.ReadFile(file)
	if err != nil || len(text) == 0 {
		t.Fatalf("the process left no trace: %v", err)
	}
	return string(text)
}

// compareTraces shows where two traces part.
func compareTraces(t *testing.T, first, second string) {
	t.Helper()
	a, b := strings.Split(first, "\n"), strings.Split(second, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("the same seed gave two traces. Line %d is in the first:\n%s\nand in the second:\n%s", i+1, a[i], b[i])
		}
	}
	if len(a) != len(b) {
		t.Errorf("the same seed gave two traces, of %d and of %d lines", len(a), len(b))
	}
}

// trace is what a simulation did, with the virtual times. The methods of a nil trace do nothing: only simulations have one.
type trace struct {
	mu    sync.Mutex
	lines []string
}

func (r *trace) note(format string, args ...any) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, time.Now().UTC().Format("15:04:05.000000000 ")+fmt.Sprintf(format, args...)+"\n")
}

// delay takes up to 10 ms of virtual time, by the name of what is to happen.
func (r *trace) delay(name ...any) {
	if r == nil || hasRaceDetector() {
		return
	}
	h := sha256.Sum256(fmt.Append(nil, name...))
	time.Sleep(time.Duration(binary.BigEndian.Uint64(h[:]) % uint64(10*time.Millisecond)))
}

// exchange lets a receiver answer a request, and notes both.
func (r *trace) exchange(q *http.Request, body []byte, a handler) (*http.Response, error) {
	if r == nil {
		return a(q)
	}
	event, attempt := q.Header.Get("X-Service-Event-Id"), q.Header.Get("X-Service-Attempt")
	r.delay("request", q.URL.Host, event, attempt)
	var headers strings.Builder
	for _, name := range slices.Sorted(maps.Keys(q.Header)) {
		fmt.Fprintf(&headers, " %s=%s", name, strings.Join(q.Header[name], ","))
	}
	r.note("request %s%s %x", q.URL, headers.String(), sha256.Sum256(body))
	p, err := a(q)
	r.delay("response", q.URL.Host, event, attempt)
	status := 0
	if p != nil {
		status = p.StatusCode
	}
	r.note("response %s %s %s %d %v", q.URL.Host, event, attempt, status, err)
	return p, err
}

// records notes the records of the subscription's attempts.
func (r *trace) records(t *testing.T, x *fixture, host string, sub webhook.Subscription) {
	for _, a := range x.attempts(t, sub) {
		r.note("record %s %s %d %s %s %d", host, a.EventID, a.Number, a.Trigger, a.Outcome, a.AttemptedAt)
	}
}

// seededJitter returns random numbers for the jitter of a dispatcher, for any goroutine.
func seededJitter(seed int) func() float64 {
	random, turn := rand.New(rand.NewPCG(uint64(seed), 3)), make(chan struct{}, 1)
	return func() float64 {
		turn <- struct{}{}
		defer func() { <-turn }()
		return random.Float64()
	}
}
