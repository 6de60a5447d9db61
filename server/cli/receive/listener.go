package receive

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

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
	At         time.Time          `json:"at"`
	Path       string             `json:"path"`
	EventID    string             `json:"event_id"`
	EventType  string             `json:"event_type"`
	Attempt    string             `json:"attempt"`
	Verified   bool               `json:"verified"`   // there is a secret, and no signature is wrong
	Signatures []diagnosis.Result `json:"signatures"` // none without a secret
	Status     int                `json:"status"`     // of the response; 0 means that there was none
	Note       string             `json:"note,omitempty"`
	DurationMS float64            `json:"duration_ms"`
	File       string             `json:"file,omitempty"` // where it is saved
	Body       string             `json:"body"`
	Encoding   string             `json:"body_encoding"`
}

func (d *delivery) succeeded() bool { return d.Status >= 200 && d.Status <= 299 }

// ServeHTTP takes a delivery.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "keyhook listen accepts only POST requests", http.StatusMethodNotAllowed)
		l.printer.note("responded with 405 to %s %s, because a delivery is a POST request", r.Method, output.Shorten(r.URL.Path, 80))
		return
	}
	at := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		status := http.StatusBadRequest
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			status = http.StatusRequestEntityTooLarge
		}
		w.WriteHeader(status)
		l.printer.note("responded with %d, because the body could not be read: %v", status, err)
		return
	}
	d := l.read(r, body, at)
	if l.save != "" {
		if d.File, err = l.saveRequest(r, body); err != nil {
			l.printer.note("a delivery was not saved: %v", err)
		}
	}
	d.Status, d.Note = l.reply(w, r, body, d)
	d.DurationMS = float64(time.Since(at).Microseconds()) / 1000
	l.printer.delivery(d)
	if d.Status == 0 {
		panic(http.ErrAbortHandler) // closes the connection
	}
}

// read reads and verifies a delivery.
func (l *listener) read(r *http.Request, body []byte, at time.Time) *delivery {
	d := &delivery{
		At: at.UTC(), Path: r.URL.Path, Body: string(body), Encoding: "text",
		EventID:   cmp.Or(r.Header.Get(l.prefix+"-Event-Id"), r.Header.Get("webhook-id")),
		EventType: r.Header.Get(l.prefix + "-Event-Type"),
		Attempt:   r.Header.Get(l.prefix + "-Attempt"),
	}
	if !utf8.Valid(body) {
		d.Encoding = "lossy" // JSON replaces invalid UTF-8
	}
	if !l.secret.IsZero() {
		d.Signatures = checkSignatures(diagnosis.Delivery{Header: r.Header, Body: body, Secret: l.secret.Reveal(), HeaderPrefix: l.prefix, Now: at})
		d.Verified = isRight(d.Signatures)
	}
	return d
}

// reply fails, forwards, or responds by the result of the signature check. It returns the status, and a note if the signature is not
// the reason.
func (l *listener) reply(w http.ResponseWriter, r *http.Request, body []byte, d *delivery) (status int, note string) {
	if l.delay > 0 {
		select {
		case <-time.After(l.delay):
		case <-r.Context().Done():
			return 0, "the sender closed the connection during --delay"
		}
	}
	status = http.StatusNoContent
	switch {
	case l.fail.next():
		status, note = l.fail.status, "because of --fail"
	case l.forward != "":
		return forward(w, r, l.forward, body)
	case !isRight(d.Signatures):
		http.Error(w, "wrong signature", http.StatusUnauthorized)
		return http.StatusUnauthorized, ""
	}
	w.WriteHeader(status)
	return status, note
}

// saveRequest writes a request as it came to the next free file N.http, for verify --request. It returns the file's path.
func (l *listener) saveRequest(r *http.Request, body []byte) (string, error) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.URL.RequestURI(), r.Host)
	_ = r.Header.Write(&text) // a buffer takes everything
	text.WriteString("\r\n")
	text.Write(body)
	for {
		path := filepath.Join(l.save, strconv.FormatInt(l.saved.Add(1), 10)+".http")
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue // of an earlier run
		}
		if err != nil {
			return "", err
		}
		_, err = file.Write(text.Bytes())
		return path, errors.Join(err, file.Close())
	}
}

const (
	forwardTimeout = 30 * time.Second // longer than a sender waits
	maxResponse    = 1 << 20          // bytes of a response that go back
)

// forwarding is the client for --forward. It uses no proxy, and returns redirects as they are.
var forwarding = &http.Client{
	Transport:     &http.Transport{},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// forward sends a delivery to a program with the same bytes and headers, and returns the program's response to the sender.
// Without a response, it responds with 502, as a proxy does. It returns the status, and a note about the response.
func forward(w http.ResponseWriter, r *http.Request, to string, body []byte) (status int, note string) {
	ctx, cancel := context.WithTimeout(r.Context(), forwardTimeout)
	defer cancel()
	resp, err := send(ctx, r, to, body)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return http.StatusBadGateway, fmt.Sprintf("the delivery could not be forwarded: %v", err)
	}
	maps.Copy(w.Header(), resp.header)
	w.WriteHeader(resp.status)
	_, _ = w.Write(resp.body) // an error means that the sender is gone
	note = "from " + to
	if text := output.Shorten(string(bytes.TrimSpace(resp.body)), 200); text != "" {
		note += ": " + text
	}
	return resp.status, note
}

// response is the response of the program.
type response struct {
	status int
	header http.Header
	body   []byte
}

// send sends a delivery on and reads the response.
func send(ctx context.Context, r *http.Request, to string, body []byte) (response, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, to, bytes.NewReader(body))
	if err != nil {
		return response{}, err
	}
	req.Header = withoutConnection(r.Header)
	resp, err := forwarding.Do(req)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	return response{resp.StatusCode, withoutConnection(resp.Header), text}, err
}

// withoutConnection returns headers without those that belong to one connection. net/http sets Content-Length.
func withoutConnection(h http.Header) http.Header {
	h = h.Clone()
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
	} {
		h.Del(name)
	}
	return h
}
