package share

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// How many lines about requests without a valid credential, or over a rate limit, go to the log.
const (
	anonymousLines  = 20  // a second, of all clients together
	anonymousBurst  = 100 // lines at once
	omittedInterval = 10 * time.Second
)

// AnonymousLog bounds the lines about requests without a valid credential, or over a rate limit, because anybody can send those at any
// rate. It counts the lines that it leaves out and writes the number to the log.
type AnonymousLog struct {
	log     *slog.Logger
	lines   *rate.Limiter
	omitted atomic.Int64 // lines since the last report
	reports rate.Sometimes
}

// NewAnonymousLog returns a limit for the lines that go to log.
func NewAnonymousLog(log *slog.Logger) *AnonymousLog {
	return &AnonymousLog{log: log, lines: rate.NewLimiter(anonymousLines, anonymousBurst), reports: rate.Sometimes{Interval: omittedInterval}}
}

// Allow reports whether a line is written. It counts the lines that are not.
func (a *AnonymousLog) Allow() (isAllowed bool) {
	if isAllowed = a.lines.Allow(); !isAllowed {
		a.omitted.Add(1)
	}
	return isAllowed
}

// Report writes how many lines were left out since the last report. It writes at most one report per omittedInterval, unless
// this is the last one. Every request calls it, so it takes no lock if there is nothing to report.
func (a *AnonymousLog) Report(last bool) {
	switch {
	case a.omitted.Load() == 0:
	case last:
		a.report()
	default:
		a.reports.Do(a.report)
	}
}

// Write logs a line of net/http. Such lines are about clients without a credential, too, such as those that fail to begin TLS.
func (a *AnonymousLog) Write(line []byte) (int, error) {
	if a.Allow() {
		a.log.Warn(string(bytes.TrimSpace(line)))
	}
	a.Report(false)
	return len(line), nil
}

func (a *AnonymousLog) report() {
	if omitted := a.omitted.Swap(0); omitted > 0 {
		a.log.LogAttrs(context.Background(), slog.LevelWarn,
			"log lines about requests without a valid credential, or over a rate limit, were left out: there were too many of these requests; metrics count all of them",
			slog.Int64("omitted", omitted))
	}
}
