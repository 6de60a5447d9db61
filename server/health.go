package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// healthStore is what readiness asks of the store.
type healthStore interface {
	// Ping reports whether the database answers.
	Ping(ctx context.Context) error
	// OldestDue returns when the oldest due delivery of an open subscription was due, in milliseconds; ok is false where
	// none is.
	OldestDue(ctx context.Context) (dueAt int64, ok bool, err error)
	// Held returns what holds the queue; nil where nothing does.
	Held() *webhook.Hold
}

// Check is a condition of readiness. Run returns an error where the process is not ready, and a warning where it is ready
// but an operator should act soon. Anybody may read both texts, so they must not contain secrets.
type Check struct {
	Name string
	Run  func(context.Context) (warning string, err error)
}

// Ticking is the check that something which leaves a time behind on every round has done so within the limit.
func Ticking(name string, last func() time.Time, limit time.Duration) Check {
	return Check{name, func(context.Context) (string, error) {
		switch at := last(); {
		case at.IsZero():
			return "", errors.New("has not ticked yet")
		case time.Since(at) > limit:
			return "", fmt.Errorf("has not ticked for %s", time.Since(at).Round(time.Second))
		}
		return "", nil
	}}
}

// latestDue is how late a due delivery may be before deliveries count as stuck.
const latestDue = time.Minute

// checkTime bounds all checks together.
const checkTime = 2 * time.Second

// health are the endpoints for those who watch the process.
type health struct {
	store    healthStore
	checks   []Check
	draining *atomic.Bool
}

type liveBody struct {
	Status string `json:"status"`
}

type readyBody struct {
	Status string                 `json:"status"`
	Checks map[string]checkResult `json:"checks"`
}

type checkResult struct {
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitempty"`
	Warning string `json:"warning,omitempty"` // the process is ready, but an operator should act
}

// live says that the process answers, and no more.
func (h health) live(c *call) error { return c.ok(liveBody{"ok"}) }

// ready says whether requests and deliveries go through, and if not, why.
func (h health) ready(c *call) error {
	ctx, cancel := context.WithTimeout(c.request.Context(), checkTime)
	defer cancel()
	own := []Check{{"database", h.database}, {"deliveries", h.deliveries}, {"process", h.process}}
	body := readyBody{"ready", map[string]checkResult{}}
	status := http.StatusOK
	for _, check := range append(own, h.checks...) {
		warning, err := check.Run(ctx)
		result := checkResult{OK: err == nil, Warning: warning}
		if err != nil {
			result.Problem = err.Error()
			body.Status, status = "not_ready", http.StatusServiceUnavailable
			c.code = "not_ready"
		}
		body.Checks[check.Name] = result
	}
	if status == http.StatusServiceUnavailable {
		c.set("Retry-After", retryAfter)
	}
	return c.write(status, "application/json", body)
}

// database does not show what the database says: that is for the log.
func (h health) database(ctx context.Context) (warning string, err error) {
	if h.store.Ping(ctx) != nil {
		return "", errors.New("does not answer")
	}
	return "", nil
}

func (h health) deliveries(ctx context.Context) (warning string, err error) {
	if hold := h.store.Held(); hold != nil {
		warning = "nothing is sent: the queue has been held since " + string(webhook.AppendTime(nil, hold.Since))
	}
	dueAt, ok, err := h.store.OldestDue(ctx)
	if err != nil {
		return warning, errors.New("cannot be read")
	}
	if late := time.Since(time.UnixMilli(dueAt)); ok && late >= latestDue {
		return warning, fmt.Errorf("the oldest due delivery is %s late", late.Round(time.Second))
	}
	return warning, nil
}

func (h health) process(context.Context) (warning string, err error) {
	if h.draining.Load() {
		return "", errors.New("is shutting down")
	}
	return "", nil
}
