// Package receive owns the commands for receivers: listen receives deliveries, and verify explains a wrong signature. Of the API of a
// server, it knows only the feeds of subscriptions.
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
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
)

// listener takes deliveries: it verifies, saves and prints them, and responds. Most fields are the flags of listen.
type listener struct {
	port    int
	secret  redact.Text // none: signatures are not verified
	prefix  string
	forward string
	to      *url.URL       // of forward
	program http.Transport // to forward, without a proxy
	status  int            // of --fail
	fail    atomic.Int64   // so many more requests get that status
	save    string
	saved   atomic.Int64 // the number of the last file
	feed    feedOptions
	asJSON  bool
	out     io.Writer // it gets each delivery in one call of Write, so it must be safe for concurrent use, as a file is
	notes   io.Writer // for people; with --json, out has only lines of JSON
}

// NewListen returns the command listen.
func NewListen() *cobra.Command {
	l := listener{port: 9000}
	var secret secretFlags
	cmd := &cobra.Command{
		Use:   "listen",
		Short: "Receive deliveries on this machine: verify, print, forward, save or refuse them",
		Long: `Receive deliveries on this machine. The command prints each delivery and verifies its signatures. It responds with 204,
or with 401 if a signature is wrong. It also explains a wrong signature.

With --forward, the command sends each delivery to your program, and returns the response of your program. With --fail,
it behaves like a failing receiver. With --save, it writes each request to a file for "keyhook verify --request".

The command listens only on the loopback address. To send there, the server must run with --dev.

With --from, the command does not listen. It reads the feed of a subscription of the server at that URL, so it also works
behind NAT and firewalls. With --event-types, it creates a subscription without a URL, and deletes it at the end. With
--subscription, it reads one that exists; with --cursor-file, it reads on where the last run ended. An event that your
program refuses comes again after some seconds. The token needs events:read, and webhooks:write for --event-types.`,
		Example: `  keyhook listen --secret-file secret.txt
  keyhook listen --secret-file secret.txt --forward http://127.0.0.1:3000/hook
  keyhook listen --secret-file secret.txt --save deliveries
  keyhook listen --fail 503:3
  keyhook listen --from https://keys.example.com --event-types 'order.*' --forward http://127.0.0.1:3000/hook
  keyhook listen --from https://keys.example.com --subscription laptop --cursor-file cursor`,
		PreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			l.to, err = url.Parse(l.forward)
			if l.forward != "" && (err != nil || l.to.Host == "" || l.to.Scheme != "http" && l.to.Scheme != "https") {
				return errors.New("--forward must be a URL, such as http://127.0.0.1:3000/hook")
			}
			if l.secret, err = secret.read(cmd.InOrStdin()); err != nil {
				return err
			}
			return l.feed.connect()
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return l.listen(cmd) },
	}
	flags := cmd.Flags()
	output.IntFlag(flags, &l.port, "port", 0, 65535, "port on 127.0.0.1; 0 means any free port")
	secret.define(cmd, &l.prefix)
	flags.StringVar(&l.forward, "forward", "", "`URL` of your program, which gets each delivery and responds")
	flags.Func("fail", "respond with this `status`, such as 503; 503:3 means only the first 3 requests", l.parseFail)
	flags.StringVar(&l.save, "save", "", "`directory` for the requests: 1.http, 2.http, …")
	flags.BoolVar(&l.asJSON, "json", false, "print each delivery as one line of JSON with the complete body")
	l.feed.define(cmd)
	return cmd
}

// listen receives until a signal comes. Later signals change nothing until the process ends: the command timeout sends two.
func (l *listener) listen(cmd *cobra.Command) error {
	ctx, _ := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	l.out, l.notes = cmd.OutOrStdout(), cmd.OutOrStdout()
	if l.asJSON {
		l.notes = cmd.ErrOrStderr()
	}
	if l.save != "" {
		if err := os.MkdirAll(l.save, 0o700); err != nil {
			return fmt.Errorf("--save: %w", err)
		}
	}
	if l.feed.from != "" {
		return l.readFeed(ctx)
	}
	return l.serve(ctx)
}

// parseFail parses --fail: STATUS, or STATUS:COUNT for the first COUNT requests.
func (l *listener) parseFail(text string) (err error) {
	status, count, counted := strings.Cut(text, ":")
	requests := math.MaxInt
	if l.status, err = strconv.Atoi(status); err == nil && counted {
		requests, err = strconv.Atoi(count)
	}
	if err != nil || l.status < 300 || l.status > 599 || requests < 1 {
		return errors.New("must be a status from 300 to 599, or a status and a number of requests, such as 503:3")
	}
	l.fail.Store(int64(requests))
	return nil
}

// silent is a log that nobody reads: listen prints what happens to each delivery.
var silent = log.New(io.Discard, "", 0)

// serve receives deliveries until ctx ends. The contexts of the requests end with ctx, and requests in progress then get another second.
func (l *listener) serve(ctx context.Context) error {
	on, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(l.port))
	if err != nil {
		return fault.Advise(fmt.Errorf("cannot listen: %w", err), "give another port with --port")
	}
	fmt.Fprintf(l.notes, "Listening on http://%s/ (any path). Stop with Ctrl-C.\n", on.Addr())
	if l.secret.IsZero() {
		fmt.Fprintf(l.notes, `There is no secret, so signatures are not verified. Give --secret-file, or set `+config.EnvWebhookSecret+`.

To send something here from a server that runs with --dev:

  keyhook subscriptions create --url http://%s/ --event-types order.created
  keyhook events publish order.created '{"number": 1001}'

The first command prints the signing secret.

`, on.Addr())
	}
	server := &http.Server{
		Handler: l, ReadHeaderTimeout: 10 * time.Second, ErrorLog: silent,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer server.Close()
	context.AfterFunc(ctx, func() { on.Close() })
	if err := server.Serve(on); ctx.Err() == nil {
		return err
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = server.Shutdown(stopping) // after that, Close ends what still runs
	return nil
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

// reply fails, forwards, or responds by the result of the signature check. It sets the status of d, and a note on any other reason.
func (l *listener) reply(w http.ResponseWriter, r *http.Request, d *delivery) {
	switch {
	case l.fail.Add(-1) >= 0:
		d.Status, d.Note = l.status, "because of --fail"
		w.WriteHeader(d.Status)
	case l.forward != "":
		l.sendOn(w, r, d)
	case d.Signatures != nil && !d.Verified:
		d.Status = http.StatusUnauthorized
		http.Error(w, "wrong signature", d.Status)
	default:
		d.Status = http.StatusNoContent
		w.WriteHeader(d.Status)
	}
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

// sendOn sends a delivery to the program of --forward with the same bytes and headers, and returns the program's response to the sender.
// Without a response, it responds with 502. It sets the status of d, and a note about the response.
func (l *listener) sendOn(w http.ResponseWriter, r *http.Request, d *delivery) {
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second) // longer than a sender waits
	defer cancel()
	proxy := httputil.ReverseProxy{
		Transport: &l.program, ErrorLog: silent,
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

const timeLayout = "15:04:05.000" // of the time before each delivery

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
