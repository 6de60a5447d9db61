package bench

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// receiver takes deliveries at a path for each section, and measures how long they took since they were published.
type receiver struct {
	mu        sync.Mutex
	latencies map[string][]time.Duration // by section, one for each delivery
}

// ServeHTTP takes a delivery. A delivery that was cut off is not counted, and expect will miss it.
func (r *receiver) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	var latency time.Duration
	if _, rest, found := bytes.Cut(body, []byte(`"at":`)); found && len(rest) >= timeDigits {
		nanoseconds, _ := strconv.ParseInt(string(rest[:timeDigits]), 10, 64) // the load wrote it
		latency = time.Since(time.Unix(0, nanoseconds))
	}
	section := strings.TrimPrefix(req.URL.Path, "/")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latencies[section] = append(r.latencies[section], latency)
}

// expect returns an error unless n deliveries came in for a section.
func (r *receiver) expect(section string, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := len(r.latencies[section]); got != n {
		return fmt.Errorf("the receiver got %d deliveries instead of %d", got, n)
	}
	return nil
}

// latency returns the median and the 99th percentile of a section in milliseconds; 0 without a delivery.
func (r *receiver) latency(section string) (p50, p99 float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sorted := slices.Sorted(slices.Values(r.latencies[section]))
	if len(sorted) == 0 {
		return 0, 0
	}
	at := func(part float64) float64 {
		return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)].Seconds() * 1000
	}
	return at(0.5), at(0.99)
}
