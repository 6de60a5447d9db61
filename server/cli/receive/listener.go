package receive

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
)

// delivery is one delivery, as it is printed.
type delivery struct {
	At         time.Time          `json:"at"`
	Path       string             `json:"path"`
	EventID    string             `json:"event_id"`
	EventType  string             `json:"event_type"`
	Attempt    string             `json:"attempt"`
	Verified   bool               `json:"verified"`   // there is a secret, and no signature is wrong
	Signatures []diagnosis.Result `json:"signatures"` // none without a secret
	Status     int                `json:"status"`     // of the response
	Note       string             `json:"note,omitempty"`
	DurationMS float64            `json:"duration_ms"`
	File       string             `json:"file,omitempty"` // where it is saved
	Body       string             `json:"body"`
	Encoding   string             `json:"body_encoding"`
}

// ServeHTTP takes a delivery.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "keyhook listen accepts only POST requests", http.StatusMethodNotAllowed)
		l.note("responded with 405 to %s %s, because a delivery is a POST request", r.Method, output.Shorten(r.URL.Path, 80))
		return
	}
	const maxBody = 4 << 20 // bytes; Keyhook's largest event has 256 KiB
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		status := http.StatusBadRequest
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			status = http.StatusRequestEntityTooLarge
		}
		w.WriteHeader(status)
		l.note("responded with %d, because the body could not be read: %v", status, err)
		return
	}
	l.take(w, r, body)
}

// take verifies, saves and prints a delivery, and responds.
func (l *listener) take(w http.ResponseWriter, r *http.Request, body []byte) *delivery {
	at := time.Now()
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
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
		d.Signatures, d.Verified = checkSignatures(diagnosis.Delivery{
			Header: r.Header, Body: body, Secret: l.secret.Reveal(), HeaderPrefix: l.prefix, Now: at,
		})
	}
	if l.save != "" {
		var err error
		if d.File, err = l.saveRequest(r); err != nil {
			l.note("a delivery was not saved: %v", err)
		}
	}
	l.reply(w, r, d)
	d.DurationMS = float64(time.Since(at).Microseconds()) / 1000
	l.print(d)
	return d
}

// reply fails, forwards, or responds by the result of the signature check. It sets the status of d, and a note if the signature is not
// the reason.
func (l *listener) reply(w http.ResponseWriter, r *http.Request, d *delivery) {
	switch {
	case l.fail.Add(-1) >= 0:
		d.Status, d.Note = l.status, "because of --fail"
	case l.forward != "":
		l.sendOn(w, r, d)
		return
	case d.Signatures != nil && !d.Verified:
		d.Status = http.StatusUnauthorized
		http.Error(w, "wrong signature", d.Status)
		return
	default:
		d.Status = http.StatusNoContent
	}
	w.WriteHeader(d.Status)
}

// saveRequest writes a request as it came to the next free file N.http, for verify --request. It returns the file's path.
func (l *listener) saveRequest(r *http.Request) (string, error) {
	text, err := httputil.DumpRequest(r, true)
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(l.save, strconv.FormatInt(l.saved.Add(1), 10)+".http")
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue // of an earlier run
		}
		if err != nil {
			return "", err
		}
		_, err = file.Write(text)
		return path, errors.Join(err, file.Close())
	}
}

// forwarding connects to the program of --forward, without a proxy.
var forwarding = &http.Transport{}

// sendOn sends a delivery to the program of --forward with the same bytes and headers, and returns the program's response to the sender.
// Without a response, it responds with 502. It sets the status of d, and a note about the response.
func (l *listener) sendOn(w http.ResponseWriter, r *http.Request, d *delivery) {
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second) // longer than a sender waits
	defer cancel()
	proxy := httputil.ReverseProxy{
		Transport: forwarding, ErrorLog: silent,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = l.to, ""
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} { // a tunnel writes them
				p.Out.Header[name] = p.In.Header[name]
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			d.Status, d.Note = resp.StatusCode, "from "+l.forward
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			d.Status, d.Note = http.StatusBadGateway, fmt.Sprintf("the delivery could not be forwarded: %v", err)
			w.WriteHeader(d.Status)
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// timeLayout is the layout of the time before each delivery.
const timeLayout = "15:04:05.000"

// note prints a sentence about a request that is no delivery.
func (l *listener) note(format string, args ...any) {
	if !l.asJSON {
		fmt.Fprintf(l.out, "%s  %s\n\n", time.Now().Format(timeLayout), output.Escape(fmt.Sprintf(format, args...)))
	}
}

// print prints a delivery. An error of the output means that nobody reads it.
func (l *listener) print(d *delivery) {
	if l.asJSON {
		_ = output.WriteJSONLine(l.out, d)
		return
	}
	lines := explain(d.Signatures)
	if d.Signatures == nil {
		lines = []string{"signatures not verified: there is no secret"}
	}
	response := fmt.Sprintf("response %d after %.1f ms", d.Status, d.DurationMS)
	if d.Note != "" {
		response += " (" + output.Escape(d.Note) + ")"
	}
	lines = append(lines, response)
	if d.File != "" {
		lines = append(lines, "saved as "+d.File)
	}
	const indent = "\n              " // below the type
	fmt.Fprintf(l.out, "%s  %s  %s  attempt %s  %s%s\n\n", d.At.Local().Format(timeLayout), orDash(d.EventType), orDash(d.EventID),
		orDash(d.Attempt), orDash(d.Path), indent+strings.Join(append(lines, shownBody(d.Body)...), indent))
}

func orDash(text string) string { return cmp.Or(output.Escape(output.Shorten(text, 150)), "–") }

// shownBody returns JSON indented and other text as it is. It escapes what a terminal would obey.
func shownBody(body string) (lines []string) {
	const maxLines, maxWidth = 24, 400 // characters of a line
	var text bytes.Buffer
	if json.Indent(&text, []byte(body), "", "  ") != nil {
		text.WriteString(body)
	}
	all := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	for _, line := range all[:min(len(all), maxLines)] {
		lines = append(lines, output.Escape(output.Shorten(line, maxWidth)))
	}
	if more := len(all) - maxLines; more > 0 {
		lines = append(lines, fmt.Sprintf("… %d more lines, %d bytes in total; use --json or --save for the complete body", more, len(body)))
	}
	return lines
}
