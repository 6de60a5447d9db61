package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
	"github.com/keyhook/keyhook/storage/redact"
)

// listener takes deliveries: it judges, answers and prints them.
type listener struct {
	secret    redact.Text // none: nothing is verified
	prefix    string
	tolerance time.Duration
	manners   *manners
	forward   string // "" is to answer here
	printer   *printer
	seen      *history
}

// received is one delivery, as it is printed.
type received struct {
	At        time.Time
	Path      string
	EventID   string
	EventType string
	Attempt   string
	Verdicts  []verdict // none without a secret
	Before    string    // how it was answered when it came before; "" where it did not
	Answered  answered
	Took      time.Duration
	Body      []byte
}

// answered is how a delivery was answered.
type answered struct {
	status int
	note   string // why, where that needs saying
	abort  bool   // not at all: the connection is closed
}

// text is what is kept and shown of it.
func (a answered) text() string {
	if a.abort {
		return "not answered"
	}
	return fmt.Sprintf("answered %d", a.status)
}

func (a answered) succeeded() bool { return !a.abort && a.status >= 200 && a.status <= 299 }

// maxDelivery bounds a body: an event is at most 256 KiB, and other senders may send more.
const maxDelivery = 4 << 20

// ServeHTTP takes a delivery.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "keyhook listen takes deliveries, by POST", http.StatusMethodNotAllowed)
		l.printer.note(fmt.Sprintf("%s %s is no delivery: answered 405", escaped(r.Method), escaped(shortened(r.URL.Path, 80))))
		return
	}
	at := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDelivery))
	if err != nil {
		l.refuse(w, err)
		return
	}
	d := l.read(r, body, at)
	d.Before = l.seen.before(d.EventID)
	d.Answered = l.answer(w, r, d)
	d.Took = time.Since(at)
	l.seen.answered(d.EventID, d.Answered.text())
	l.printer.delivery(d)
	if d.Answered.abort {
		abort(w)
	}
}

// abort closes the connection without an answer, so that the sender sees a reset.
func abort(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // without it the sender sees an orderly end
	}
	conn.Close()
}

// refuse answers what cannot be read.
func (l *listener) refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		status = http.StatusRequestEntityTooLarge
	}
	w.WriteHeader(status)
	l.printer.note(fmt.Sprintf("a body could not be read (%v): answered %d", err, status))
}

// read takes a request for what it is.
func (l *listener) read(r *http.Request, body []byte, at time.Time) *received {
	d := &received{
		At: at, Path: r.URL.Path, Body: body,
		EventID:   r.Header.Get(l.prefix + "-Event-Id"),
		EventType: r.Header.Get(l.prefix + "-Event-Type"),
		Attempt:   r.Header.Get(l.prefix + "-Attempt"),
	}
	if d.EventID == "" {
		d.EventID = r.Header.Get("webhook-id")
	}
	if !l.secret.IsZero() {
		d.Verdicts = judge(diagnosis.Delivery{
			Header: r.Header, Body: body, Secret: l.secret.Reveal(), HeaderPrefix: l.prefix, Now: at, Tolerance: l.tolerance,
		})
	}
	return d
}

// answer answers: as told, as the program does that it is forwarded to, or as a good receiver does.
func (l *listener) answer(w http.ResponseWriter, r *http.Request, d *received) answered {
	if !l.manners.pause(r.Context()) {
		return answered{abort: true, note: "the sender gave up while it was delayed"}
	}
	if a, ok := l.manners.misbehave(w, r); ok {
		return a
	}
	if l.forward != "" {
		return forward(w, r, l.forward, d.Body)
	}
	if !isRight(d.Verdicts) {
		http.Error(w, "wrong signature", http.StatusUnauthorized)
		return answered{status: http.StatusUnauthorized}
	}
	w.WriteHeader(http.StatusNoContent)
	return answered{status: http.StatusNoContent}
}
