package cli

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The paths of the receiver. After the first three follows the name of the series in which a delivery is counted; after
// pathReport, that of the series to report.
const (
	pathTake   = "/take/"
	pathSlow   = "/slow/" // answers after slowAnswer
	pathHang   = "/hang/" // does not answer until the client goes away, or pathRelease is asked for
	pathReport = "/report/"

	pathHanging = "/hanging" // how many wait at pathHang
	pathRelease = "/release" // cuts them
)

// slowAnswer is how long a slow endpoint takes.
const slowAnswer = 100 * time.Millisecond

// benchReceiver takes deliveries and measures how long they took from the publisher, by their stamp and its own clock,
// which on one machine is the publisher's.
type benchReceiver struct {
	hanging atomic.Int64

	mu       sync.Mutex
	series   map[string]*series
	released chan struct{}
}

func newBenchReceiver() *benchReceiver {
	return &benchReceiver{series: map[string]*series{}, released: make(chan struct{})}
}

// series is what came in under one name.
type series struct {
	mu    sync.Mutex
	delay []time.Duration // from the stamp to the receipt
}

// seriesReport is what is told of a series.
type seriesReport struct {
	Received     int     `json:"received"`
	Median       float64 `json:"p50_ms"`
	Percentile99 float64 `json:"p99_ms"`
}

// ServeHTTP takes a delivery, or answers a question of the benchmark.
func (r *benchReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch path := req.URL.Path; {
	case strings.HasPrefix(path, pathTake):
		r.take(req, path[len(pathTake):])
	case strings.HasPrefix(path, pathSlow):
		r.take(req, path[len(pathSlow):])
		wait := time.NewTimer(slowAnswer)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-req.Context().Done():
		}
	case strings.HasPrefix(path, pathHang):
		r.take(req, path[len(pathHang):])
		r.hang(req)
	case strings.HasPrefix(path, pathReport):
		respond(w, r.report(path[len(pathReport):]))
	case path == pathHanging:
		respond(w, r.hanging.Load())
	case path == pathRelease:
		r.mu.Lock()
		defer r.mu.Unlock()
		close(r.released)
		r.released = make(chan struct{})
		respond(w, nil)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

var benchBuffers = sync.Pool{New: func() any { return new([]byte) }}

// take reads a delivery and counts it. One that is cut off or has no stamp is not counted, and will be missed.
func (r *benchReceiver) take(req *http.Request, name string) {
	buffer := benchBuffers.Get().(*[]byte)
	defer benchBuffers.Put(buffer)
	*buffer = slices.Grow((*buffer)[:0], int(max(0, req.ContentLength)))[:max(0, req.ContentLength)]
	if _, err := io.ReadFull(req.Body, *buffer); err != nil {
		return
	}
	if at, ok := sentAt(*buffer); ok {
		r.named(name).add(time.Since(at))
	}
}

func (r *benchReceiver) hang(req *http.Request) {
	r.mu.Lock()
	released := r.released
	r.mu.Unlock()
	r.hanging.Add(1)
	defer r.hanging.Add(-1)
	select {
	case <-req.Context().Done():
	case <-released:
	}
	panic(http.ErrAbortHandler)
}

func (r *benchReceiver) named(name string) *series {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.series[name]
	if s == nil {
		s = new(series)
		r.series[name] = s
	}
	return s
}

// report tells of a series and begins it anew.
func (r *benchReceiver) report(name string) seriesReport {
	s := r.named(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.delay)
	report := seriesReport{len(s.delay), quantile(s.delay, 0.5), quantile(s.delay, 0.99)}
	s.delay = s.delay[:0]
	return report
}

func (s *series) add(delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = append(s.delay, delay)
}

// quantile returns the least value that the given part of all does not exceed, in milliseconds; 0 where there is none.
func quantile(sorted []time.Duration, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	place := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[max(0, place)].Seconds() * 1000
}

// respond writes v as JSON. Where the benchmark is gone, nobody is left to tell.
func respond(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
