package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/server/cli/flag"
)

// manners are how a receiver behaves, or misbehaves, on demand.
type manners struct {
	fail       failure
	retryAfter int
	delay      time.Duration
	drip       bool
	redirect   string
	reset      bool
}

func (m *manners) flags(flags *pflag.FlagSet) {
	flags.Var(&m.fail, "fail", "answer with this status, as 503, or 503:3 for the first 3 requests alone")
	flag.Int(flags, &m.retryAfter, "retry-after", 0, 86400, "seconds for Retry-After in failed answers; 0 is none")
	flags.DurationVar(&m.delay, "delay", 0, "wait so long before each answer, as 3s")
	flags.BoolVar(&m.drip, "drip", false, "answer at once, and send the body a byte a second for as long as anybody waits")
	flags.StringVar(&m.redirect, "redirect", "", "answer 307 with this URL")
	flags.BoolVar(&m.reset, "reset", false, "close the connection without an answer")
}

func (m *manners) check() error {
	switch {
	case m.delay < 0:
		return errors.New("--delay must not be less than 0")
	case m.retryAfter > 0 && m.fail.status == 0:
		return errors.New("--retry-after is for the answers of --fail, as in --fail 429:2 --retry-after 5")
	}
	return checkURL("--redirect", m.redirect)
}

// checkURL checks a URL that may be empty.
func checkURL(flag, text string) error {
	if text == "" {
		return nil
	}
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%s takes a URL such as http://127.0.0.1:3000/hook", flag)
	}
	return nil
}

// pause waits for the delay; it returns false where the sender, or the receiver itself, has gone meanwhile.
func (m *manners) pause(ctx context.Context) bool { return pause(ctx, m.delay) }

func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// misbehave answers in the way that was asked for. ok is false where nothing was.
func (m *manners) misbehave(w http.ResponseWriter, r *http.Request) (a answered, ok bool) {
	switch {
	case m.fail.next():
		if m.retryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(m.retryAfter))
		}
		w.WriteHeader(m.fail.status)
		return answered{status: m.fail.status, note: "as told by --fail"}, true
	case m.redirect != "":
		w.Header().Set("Location", m.redirect)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return answered{status: http.StatusTemporaryRedirect, note: "as told by --redirect"}, true
	case m.reset:
		return answered{abort: true, note: "connection closed, as told by --reset"}, true
	case m.drip:
		return answered{status: http.StatusOK, note: drip(w, r)}, true
	}
	return answered{}, false
}

// drip sends a byte a second until the sender gives up, and says after how many it did.
func drip(w http.ResponseWriter, r *http.Request) string {
	control, n := http.NewResponseController(w), 0
	for ; n == 0 || pause(r.Context(), time.Second); n++ {
		if _, err := w.Write([]byte(".")); err != nil || control.Flush() != nil {
			break
		}
	}
	return fmt.Sprintf("as told by --drip: the sender gave up after %d bytes", n)
}

// failure is a status to answer with, and for how many requests: its flag is STATUS or STATUS:COUNT. It is safe for
// concurrent use once it is set.
type failure struct {
	status int // 0 is none
	count  int // 0 is every request
	made   atomic.Int64
}

// Set reads the flag.
func (f *failure) Set(text string) error {
	const form = "it takes a status from 300 to 599, or one and a count of requests, as 503:3"
	status, count, counted := strings.Cut(text, ":")
	var err error
	if f.status, err = strconv.Atoi(status); err != nil || f.status < 300 || f.status > 599 {
		return errors.New(form)
	}
	if f.count = 0; !counted {
		return nil
	}
	if f.count, err = strconv.Atoi(count); err != nil || f.count < 1 {
		return errors.New(form)
	}
	return nil
}

func (f *failure) String() string {
	switch {
	case f.status == 0:
		return ""
	case f.count == 0:
		return strconv.Itoa(f.status)
	default:
		return fmt.Sprintf("%d:%d", f.status, f.count)
	}
}

// Type names the value in the help.
func (f *failure) Type() string { return "status" }

// next reports whether the next request is to fail.
func (f *failure) next() bool {
	return f.status != 0 && (f.count == 0 || f.made.Add(1) <= int64(f.count))
}
