package webhook

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxResponseBody limits the part of a receiver's response that is stored, in characters.
const MaxResponseBody = 2000

// Outcome is how an attempt ended.
type Outcome uint8

// The outcomes, as they are stored. An attempt is Sending from before its first byte until its result is recorded. Until then
// only its delivery is in the file.
const (
	Sending Outcome = iota
	Succeeded
	Failed
	Interrupted // by a crash or a stop of Keyhook itself: not a failure of the receiver
)

var outcomeNames = [...]string{"sending", "succeeded", "failed", "interrupted"}

// String returns the outcome's public name.
func (o Outcome) String() string { return outcomeNames[o] }

// ParseOutcome reads a public name.
func ParseOutcome(s string) (o Outcome, ok bool) {
	i := slices.Index(outcomeNames[:], s)
	return Outcome(max(i, 0)), i >= 0
}

// Trigger is why an attempt was made. A delivery stores the trigger of its first attempt; all later attempts are retries.
type Trigger uint8

// The triggers, as they are stored.
const (
	ByEvent Trigger = iota
	ByRetry
	ByHand
	ByTest
)

// String returns the trigger's public name.
func (t Trigger) String() string { return [...]string{"event", "retry", "manual", "test"}[t] }

// Attempt is the durable record of one request to a receiver.
type Attempt struct {
	RowID          int64   `db:"id"`
	ID             string  `db:"-"`
	SubscriptionID string  `db:"subscription_public_id"`
	EventRow       int64   `db:"event_id"`
	EventID        string  `db:"-"`
	EventType      string  `db:"event_type"`
	EventAt        int64   `db:"event_at"`
	Number         int     `db:"attempt_number"`
	Trigger        Trigger `db:"cause"`
	Outcome        Outcome `db:"outcome"`
	ResponseStatus *int    `db:"response_status"` // nil if there was no response
	ResponseBody   string  `db:"response_body"`
	ResponseHeader string  `db:"response_headers"` // see CutHeader
	DurationMS     int64   `db:"duration_ms"`
	Error          string  `db:"error"` // Failure.String; empty on success
	AttemptedAt    int64   `db:"attempted_at"`
	NextAttemptAt  *int64  `db:"next_attempt_at"`
}

// SentAttempt is an attempt with its request.
type SentAttempt struct {
	Attempt
	Body  []byte `db:"body"`
	URL   string `db:"url"`    // of the subscription now
	URLAt int64  `db:"url_at"` // since when the subscription has this URL
	// HeaderNames are the names of the subscription's own headers now; HeadersAt is since when it has them.
	HeaderNames HeaderNames `db:"header_names"`
	HeadersAt   int64       `db:"headers_at"`
}

// AttemptFilter selects attempts, newest first. A zero field selects all. Before and BeforeAt are the row id and the time of
// the attempt at which the page begins.
type AttemptFilter struct {
	BeforeAt  int64
	Before    int64
	Limit     int
	Outcome   *Outcome
	EventType string
	EventID   string
	Since     int64 // inclusive
	Until     int64 // exclusive
}

// AttemptPage is a part of a log, newest first. If Next is not 0, the search reached its limit of rows before the page was
// full. The page may then have few attempts or none. Next and NextAt are the row id and the time of the next page.
type AttemptPage struct {
	Attempts []Attempt
	Next     int64
	NextAt   int64
}

// The limits of the header of a response that is stored.
const (
	MaxResponseHeaders = 20  // fields
	MaxHeaderText      = 256 // characters of a name, and of a value
)

// unstored are the fields of a response that are secrets of the receiver, or that say nothing about it.
var unstored = []string{"Set-Cookie", "Set-Cookie2", "Date", "Content-Length", "Connection", "Keep-Alive", "Transfer-Encoding"}

// CutHeader returns the part of the header of a receiver's response that is stored, for example the id that its log has for the
// request: a line for each field, by name, with a colon and a space before the value. Several values have ", " between them. The values of
// the sent headers are masked.
func CutHeader(header http.Header, sent []Header) string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(header)), func(name string) bool { return slices.Contains(unstored, name) })
	var b strings.Builder
	for _, name := range names[:min(len(names), MaxResponseHeaders)] {
		value := strings.Join(header[name], ", ")
		if len(sent) > 0 {
			value = string(MaskHeaders([]byte(value), sent, false))
		}
		b.WriteString(cutLine(name) + ": " + cutLine(value) + "\n")
	}
	return b.String()
}

// cutLine returns the part of a name or value that is stored, in one line.
func cutLine(text string) string {
	if len(text) <= MaxHeaderText && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return text // as nearly all are
	}
	runes := []rune(CutBody([]byte(strings.ReplaceAll(text, "\n", " "))))
	return string(runes[:min(len(runes), MaxHeaderText)])
}

// CutBody returns the part of a receiver's response that is stored: valid UTF-8 without control characters except line feed
// and tab, at most MaxResponseBody characters.
func CutBody(body []byte) string {
	var b strings.Builder
	for n := 0; len(body) > 0 && n < MaxResponseBody; {
		r, size := utf8.DecodeRune(body) // invalid bytes decode to U+FFFD
		body = body[size:]
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			continue
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// FailureClass groups failed attempts by their cause. Its text begins the stored error, and labels metrics.
type FailureClass string

// The classes of failure.
const (
	DNSError       FailureClass = "dns_error"
	ConnectError   FailureClass = "connect_error"
	TLSError       FailureClass = "tls_error"
	TimeoutError   FailureClass = "timeout"
	BlockedAddress FailureClass = "blocked_address"
	HTTPStatus     FailureClass = "http_status"    // the receiver responded, but not with 2xx
	ProtocolError  FailureClass = "protocol_error" // the request could not be made, or the response could not be read
)

// Texts of failures that a hint needs.
const (
	NothingSent    = "nothing was sent: "                                       // begins that of a ProtocolError without a request
	ConnectionLost = "the connection was lost before the response was complete" // of a ConnectError after the connection was made
)

// FailureClasses lists all classes.
func FailureClasses() []FailureClass {
	return []FailureClass{DNSError, ConnectError, TLSError, TimeoutError, BlockedAddress, HTTPStatus, ProtocolError}
}

// Failure says why an attempt failed. The zero value is no failure.
type Failure struct {
	Class FailureClass
	Text  string // a fixed phrase: an error's own text may contain a resolved address, or the path and query of a URL
}

// IsZero reports whether there is no failure.
func (f Failure) IsZero() bool { return f == Failure{} }

// String returns the class and the text, as they are stored and shown; empty for no failure.
func (f Failure) String() string {
	if f.IsZero() {
		return ""
	}
	return string(f.Class) + ": " + f.Text
}
