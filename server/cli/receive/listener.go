package receive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
	"github.com/keyhook/keyhook/storage/redact"
)

// listener takes deliveries: it verifies, saves and prints them, and responds.
type listener struct {
	*listenOptions
	secret  redact.Text // none: signatures are not verified
	printer *printer
	saved   atomic.Int64 // the number of the last file
}

// delivery is one delivery, as it is printed.
type delivery struct {
	at        time.Time
	path      string
	eventID   string
	eventType string
	attempt   string
	results   []signatureResult // none without a secret
	body      []byte
	reply     reply
	took      time.Duration
	file      string // where it is saved
}

// reply is the response to a delivery.
type reply struct {
	status int    // 0 means that there was no response
	note   string // the reason, if it is not the signature
}

func (a reply) succeeded() bool { return a.status >= 200 && a.status <= 299 }

// maxBody bounds a body in bytes. Keyhook's largest event has 256 KiB.
const maxBody = 4 << 20

// ServeHTTP takes a delivery.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "keyhook listen accepts only POST requests", http.StatusMethodNotAllowed)
		l.printer.note(fmt.Sprintf("responded with 405 to %s %s, because a delivery is a POST request", r.Method, output.Shorten(r.URL.Path, 80)))
		return
	}
	at := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		l.refuse(w, err)
		return
	}
	d := l.read(r, body, at)
	if l.save != "" {
		if d.file, err = l.saveRequest(r, body); err != nil {
			l.printer.note(fmt.Sprintf("a delivery was not saved: %v", err))
		}
	}
	d.reply = l.reply(w, r, d)
	d.took = time.Since(at)
	l.printer.delivery(d)
	if d.reply.status == 0 {
		panic(http.ErrAbortHandler) // closes the connection
	}
}

// refuse responds to a request whose body cannot be read.
func (l *listener) refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		status = http.StatusRequestEntityTooLarge
	}
	w.WriteHeader(status)
	l.printer.note(fmt.Sprintf("responded with %d, because the body could not be read: %v", status, err))
}

// read reads and verifies a delivery.
func (l *listener) read(r *http.Request, body []byte, at time.Time) *delivery {
	d := &delivery{
		at: at, path: r.URL.Path, body: body,
		eventID:   cmp.Or(r.Header.Get(l.prefix+"-Event-Id"), r.Header.Get("webhook-id")),
		eventType: r.Header.Get(l.prefix + "-Event-Type"),
		attempt:   r.Header.Get(l.prefix + "-Attempt"),
	}
	if !l.secret.IsZero() {
		d.results = checkSignatures(diagnosis.Delivery{Header: r.Header, Body: body, Secret: l.secret.Reveal(), HeaderPrefix: l.prefix, Now: at})
	}
	return d
}

// reply fails, forwards, or responds by the result of the signature check.
func (l *listener) reply(w http.ResponseWriter, r *http.Request, d *delivery) reply {
	switch {
	case !pause(r.Context(), l.delay):
		return reply{note: "the sender closed the connection during --delay"}
	case l.fail.next():
		w.WriteHeader(l.fail.status)
		return reply{l.fail.status, "because of --fail"}
	case l.forward != "":
		return forward(w, r, l.forward, d.body)
	case !isRight(d.results):
		http.Error(w, "wrong signature", http.StatusUnauthorized)
		return reply{status: http.StatusUnauthorized}
	}
	w.WriteHeader(http.StatusNoContent)
	return reply{status: http.StatusNoContent}
}

// pause waits. It returns false if ctx ends before.
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

// failure is the flag --fail: STATUS, or STATUS:COUNT for the first COUNT requests. It is safe for concurrent use once it is set.
type failure struct {
	status int // 0 is no failure
	count  int // 0 is every request
	sent   atomic.Int64
}

// Set parses the flag.
func (f *failure) Set(text string) error {
	status, count, counted := strings.Cut(text, ":")
	var err error
	if f.status, err = strconv.Atoi(status); err == nil && counted {
		f.count, err = strconv.Atoi(count)
	}
	if err != nil || f.status < 300 || f.status > 599 || counted && f.count < 1 {
		return errors.New("must be a status from 300 to 599, or a status and a number of requests, such as 503:3")
	}
	return nil
}

// String returns "": the flag has no default.
func (f *failure) String() string { return "" }

// Type names the value in the help.
func (f *failure) Type() string { return "status" }

// next reports whether the next request must fail.
func (f *failure) next() bool {
	return f.status != 0 && (f.count == 0 || f.sent.Add(1) <= int64(f.count))
}
