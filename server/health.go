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
	// Hold returns what holds the queue; nil where nothing does.
	Hold() *webhook.Hold
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

// checkTime bounds all checks together.
const checkTime = 2 * time.Second

// How long the result of the checks serves everybody who asks. Anybody may ask, and as often as they like, so a look must
// not cost more the more people look. A problem is looked at again sooner, so that its end is seen soon.
const (
	readyKept    = time.Second
	notReadyKept = 100 * time.Millisecond
)

// health are the endpoints for those who watch the process.
type health struct {
	store      healthStore
	deliveries func(context.Context) (warning string, err error) // nil checks nothing
	checks     []Check
	draining   *atomic.Bool
	last       *look
}

// look is what the checks said when they were last asked.
type look struct {
	turn     chan struct{} // holds a token while somebody looks
	body     readyBody
	until    time.Time // it serves everybody who asks
	draining bool
}

type liveBody struct {
	Status string `json:"status"`
}

// The status of a readyBody.
const (
	isReady  = "ready"
	notReady = "not_ready"
)

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
	body := h.look(c.request.Context())
	if body.Status == isReady {
		return c.ok(body)
	}
	c.code = notReady
	c.set("Retry-After", retryAfter)
	return c.write(http.StatusServiceUnavailable, "application/json", body)
}

// look returns the result of the checks, which it runs only if their last result is too old. Requests that come meanwhile
// wait for that result. The checks go on when the request that began them ends.
func (h health) look(ctx context.Context) readyBody {
	h.last.turn <- struct{}{}
	defer func() { <-h.last.turn }()
	draining := h.draining.Load()
	if draining == h.last.draining && time.Now().Before(h.last.until) {
		return h.last.body
	}
	h.last.draining = draining
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTime)
	defer cancel()
	h.last.body = h.check(ctx)
	kept := readyKept
	if h.last.body.Status != isReady {
		kept = notReadyKept
	}
	h.last.until = time.Now().Add(kept)
	return h.last.body
}

// check runs all checks.
func (h health) check(ctx context.Context) readyBody {
	own := []Check{{"database", h.database}, {"deliveries", h.queue}, {"process", h.process}}
	body := readyBody{isReady, map[string]checkResult{}}
	for _, check := range append(own, h.checks...) {
		warning, err := check.Run(ctx)
		result := checkResult{OK: err == nil, Warning: warning}
		if err != nil {
			result.Problem = err.Error()
			body.Status = notReady
		}
		body.Checks[check.Name] = result
	}
	return body
}

// database does not show what the database says: that is for the log.
func (h health) database(ctx context.Context) (warning string, err error) {
	if h.store.Ping(ctx) != nil {
		return "", errors.New("does not answer")
	}
	return "", nil
}

// queue says whether deliveries go out, as far as that is up to this process.
func (h health) queue(ctx context.Context) (warning string, err error) {
	if hold := h.store.Hold(); hold != nil {
		return "nothing is sent: the queue has been held since " + string(webhook.AppendTime(nil, hold.Since)), nil
	}
	if h.deliveries == nil {
		return "", nil
	}
	return h.deliveries(ctx)
}

func (h health) process(context.Context) (warning string, err error) {
	if h.draining.Load() {
		return "", errors.New("is shutting down")
	}
	return "", nil
}
