package bench

import (
	"net/http"
	"time"
)

// Receiver is the receiver, for tests.
type Receiver struct{ r *receiver }

// NewReceiver returns a receiver that does not listen.
func NewReceiver() Receiver { return Receiver{&receiver{latencies: map[string][]time.Duration{}}} }

func (r Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.r.ServeHTTP(w, req) }
func (r Receiver) Latency(section string, n int) (p50, p99 float64, err error) {
	return r.r.latency(section, n)
}

// PublishRequest returns the text of a request that publishes events at the given time.
func PublishRequest(key, eventType string, size, batch int, at time.Time) string {
	b := &bench{report: report{Body: size}, key: key}
	return string(withTime(b.publishRequest(eventType, batch), at))
}

// Significant returns a number as the table shows it.
func Significant(v float64) string { return significant(v) }
