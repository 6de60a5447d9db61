package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/platform"
	"github.com/keyhook/keyhook/server/share"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/webhook"
)

// ReadinessCheck is a condition of readiness. Run returns an error if the process is not ready. It returns a warning if the process is
// ready but an operator should act soon. Anybody may read both texts, so they must not contain secrets.
type ReadinessCheck struct {
	Name string
	Run  func(context.Context) (warning string, err error)
}

// Ticking checks that a loop has run within the limit. last returns the time of its last round.
func Ticking(name string, last func() time.Time, limit time.Duration) ReadinessCheck {
	return ReadinessCheck{name, func(context.Context) (string, error) {
		switch at := last(); {
		case at.IsZero():
			return "", errors.New("has not ticked yet")
		case time.Since(at) > limit:
			return "", fmt.Errorf("has not ticked for %s", time.Since(at).Round(time.Second))
		}
		return "", nil
	}}
}

// ClockCheck is a check of readiness. A doubted clock is only a warning, because requests and deliveries go on. state returns the
// state of the clock.
func ClockCheck(state func() clock.State) ReadinessCheck {
	return ReadinessCheck{"clock", func(context.Context) (string, error) { return platform.ClockWarning(state()), nil }}
}

const checkTime = 2 * time.Second

// readyKept is how long a result of the checks is served from the cache. Anybody may ask as often as they like, so the number of requests
// must not change the cost.
const readyKept = time.Second

type health struct {
	*Server

	lock        chan struct{} // holds a token while the checks run
	last        readyBody     // the last result of the checks
	until       time.Time     // when that expires
	wasDraining bool          // at that time
}

// The status of a readyBody.
const (
	isReady  = "ready"
	notReady = "not_ready"
)

type readyBody struct {
	Status string                 `json:"status"`
	Checks map[string]checkResult `json:"checks"`
	// Settings are for commands on this machine, such as doctor, which may not use a credential: the first authenticated request
	// ends the printing of the first token. They are in the responses of the local socket only.
	Settings map[string]string `json:"settings,omitempty"`

	cause error // the problems, for the log
}

type checkResult struct {
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitempty"`
	Warning string `json:"warning,omitempty"` // the process is ready, but an operator should act
}

func (h *health) live(x *exchange.Exchange) error { return x.OK(map[string]string{"status": "ok"}) }

func (h *health) ready(x *exchange.Exchange) error {
	body := h.readiness(x.Request.Context())
	if x.Local && !share.IsForwarded(x.Request) {
		body.Settings = h.options.Settings
	}
	if body.Status == isReady {
		return x.OK(body)
	}
	x.Code, x.Cause = notReady, body.cause
	x.SetHeader("Retry-After", retryAfter)
	return x.Respond(http.StatusServiceUnavailable, body)
}

// readiness returns the cached result of the checks, or runs them if it is too old. Concurrent requests wait for that result.
// The checks continue if the request that started them ends.
func (h *health) readiness(ctx context.Context) readyBody {
	h.lock <- struct{}{}
	defer func() { <-h.lock }()
	draining := h.draining.Load()
	if draining == h.wasDraining && time.Now().Before(h.until) {
		return h.last
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTime)
	defer cancel()
	h.last, h.wasDraining = h.check(ctx), draining
	h.until = time.Now().Add(readyKept)
	return h.last
}

func (h *health) check(ctx context.Context) readyBody {
	own := []ReadinessCheck{{"database", h.database}, {"deliveries", h.queue}, {"process", h.process}}
	body := readyBody{Status: isReady, Checks: map[string]checkResult{}}
	for _, check := range append(own, h.options.Checks...) {
		warning, err := check.Run(ctx)
		result := checkResult{OK: err == nil, Warning: warning}
		if err != nil {
			result.Problem = err.Error()
			body.Status, body.cause = notReady, errors.Join(body.cause, fmt.Errorf("%s: %w", check.Name, err))
		}
		body.Checks[check.Name] = result
	}
	return body
}

// database does not return the error of the database, because anybody may read the response.
func (h *health) database(ctx context.Context) (warning string, err error) {
	if h.options.Store.Ping(ctx) != nil {
		return "", errors.New("does not answer")
	}
	return "", nil
}

// queue says whether this process sends deliveries.
func (h *health) queue(ctx context.Context) (warning string, err error) {
	if hold := h.options.Store.Hold(); hold != nil {
		return "nothing is sent: the queue has been held since " + string(webhook.AppendTime(nil, hold.Since)), nil
	}
	if h.options.Deliveries == nil {
		return "", nil
	}
	return h.options.Deliveries(ctx)
}

func (h *health) process(context.Context) (warning string, err error) {
	if h.draining.Load() {
		return "", errors.New("is shutting down")
	}
	return "", nil
}
