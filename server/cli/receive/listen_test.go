package receive_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/cli"
)

// transcript is what a command has printed so far. It is safe for concurrent use.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *transcript) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *transcript) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// listening is a running `keyhook listen`.
type listening struct {
	url       string
	out, errs transcript
	stop      func() int // and returns the exit code
}

// startListen runs it on a free port until the test ends or it is told to stop.
func startListen(t *testing.T, args ...string) *listening {
	t.Helper()
	l := startCommand(t, "Listening on http://127.0.0.1:", append([]string{"--port", "0"}, args...)...)
	_, rest, _ := strings.Cut(l.out.String()+l.errs.String(), "Listening on ")
	l.url, _, _ = strings.Cut(rest, " ")
	return l
}

// startCommand runs it until the test ends or it is told to stop, and waits for a text.
func startCommand(t *testing.T, ready string, args ...string) *listening {
	t.Helper()
	l := &listening{}
	root := cli.New(cli.Options{In: strings.NewReader(""), Out: &l.out, Err: &l.errs})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- cli.Run(ctx, root, append([]string{"listen"}, args...)) }()
	l.stop = sync.OnceValue(func() int { cancel(); return <-ended })
	t.Cleanup(func() { l.stop() })
	l.await(t, ready)
	return l
}

// await waits until a text was printed.
func (l *listening) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(l.out.String()+l.errs.String(), text); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %q in:\n%s%s", text, l.out.String(), l.errs.String())
		}
	}
}

// post delivers, and returns the status and the body of the response; 0 if there was none.
func (l *listening) post(t *testing.T, h http.Header, body string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", l.url+"hook", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = h.Clone()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	return resp.StatusCode, resp.Header, string(text)
}

func TestListen(t *testing.T) {
	t.Parallel()
	now := time.Now().Unix()
	right := signed(t, hookSecret, hookBody, now)

	t.Run("verifies, prints and answers 204, and says what came to it", func(t *testing.T) {
		t.Parallel()
		l := startListen(t, "--secret", hookSecret)
		if status, _, _ := l.post(t, right, hookBody); status != 204 {
			t.Errorf("status %d", status)
		}
		if code := l.stop(); code != cli.ExitOK {
			t.Errorf("exit code %d", code)
		}
		for _, want := range []string{
			"order.paid  evt_1  attempt 1  /hook\n",
			"X-Service-Signature is right.\n              webhook-signature is right.\n", "response 204 after", "                \"type\": \"order.paid\",\n",
		} {
			if !strings.Contains(l.out.String(), want) {
				t.Errorf("no %q in:\n%s", want, l.out.String())
			}
		}
		if strings.Contains(l.out.String(), "subscriptions create") || strings.Contains(l.out.String(), "\x1b") || strings.Contains(l.out.String(), hookSecret) {
			t.Errorf("a command that makes another secret, colours, or a secret, in:\n%s", l.out.String())
		}
	})

	t.Run("refuses a wrong signature and says why", func(t *testing.T) {
		t.Parallel()
		l := startListen(t, "--secret", hookSecret)
		if status, _, _ := l.post(t, right, hookBody+"\n"); status != 401 {
			t.Errorf("status %d", status)
		}
		l.stop()
		if got := l.out.String(); !strings.Contains(got, "webhook-signature is WRONG: ") || strings.Count(got, "body_newline_added (proved)\n") != 2 {
			t.Error(got)
		}
	})

	t.Run("says that it cannot verify without a secret, and takes all", func(t *testing.T) {
		t.Parallel()
		l := startListen(t)
		if status, _, _ := l.post(t, http.Header{}, "nonsense"); status != 204 {
			t.Errorf("status %d", status)
		}
		l.stop()
		create := "keyhook subscriptions create --url " + l.url + " --event-types order.created\n"
		if got := l.out.String(); !strings.Contains(got, "There is no secret") || !strings.Contains(got, create) || !strings.Contains(got, "signatures not verified") || !strings.Contains(got, "–  –  attempt –") {
			t.Error(got)
		}
	})
}

func TestListenMisbehaves(t *testing.T) {
	t.Parallel()
	right := signed(t, hookSecret, hookBody, time.Now().Unix())

	t.Run("fails the first requests only", func(t *testing.T) {
		t.Parallel()
		l := startListen(t, "--secret", hookSecret, "--fail", "503:1")
		for i, want := range []int{503, 204, 204} {
			if status, _, _ := l.post(t, right, hookBody); status != want {
				t.Errorf("request %d: status %d", i+1, status)
			}
		}
		l.stop()
		if got := l.out.String(); strings.Count(got, "(because of --fail)") != 1 {
			t.Error(got)
		}
	})

	t.Run("fails on demand", func(t *testing.T) {
		t.Parallel()
		if status, _, _ := startListen(t, "--fail", "500").post(t, right, hookBody); status != 500 {
			t.Errorf("--fail: status %d", status)
		}
	})

	t.Run("saves each request for verify, and keeps the files of an earlier run", func(t *testing.T) {
		t.Parallel()
		directory := filepath.Join(t.TempDir(), "deliveries")
		for run, body := range []string{hookBody, hookBody + "\n"} {
			l := startListen(t, "--secret", hookSecret, "--save", directory)
			l.post(t, right, body)
			l.stop()
			file := filepath.Join(directory, strconv.Itoa(run+1)+".http")
			if !strings.Contains(l.out.String(), "saved as "+file+"\n") {
				t.Error(l.out.String())
			}
			code, stdout, stderr := execute(t, []string{"verify", "--secret", hookSecret, "--request", file})
			if run == 0 && (code != cli.ExitOK || !strings.HasPrefix(stdout, "X-Service-Signature is right.\nwebhook-signature is right.\n")) {
				t.Errorf("code %d, output %q, errors %q", code, stdout, stderr)
			}
			if run == 1 && (code != cli.ExitFailure || !strings.Contains(stdout, "body_newline_added (proved)")) {
				t.Errorf("code %d, output %q, errors %q", code, stdout, stderr)
			}
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("error %v, %v", err, info)
			}
		}
	})
}

func TestListenBounds(t *testing.T) {
	t.Parallel()
	right := signed(t, hookSecret, hookBody, time.Now().Unix())

	t.Run("ends at once although a sender is made to wait", func(t *testing.T) {
		t.Parallel()
		waits := make(chan struct{})
		program := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // net/http notices the end of a connection only after the body
			close(waits)
			<-r.Context().Done()
		}))
		defer program.Close()
		l := startListen(t, "--forward", program.URL)
		req, _ := http.NewRequestWithContext(t.Context(), "POST", l.url, strings.NewReader(hookBody))
		ended := make(chan struct{})
		go func() {
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
			close(ended)
		}()
		<-waits
		began := time.Now()
		if l.stop(); time.Since(began) > 10*time.Second {
			t.Errorf("after %s", time.Since(began))
		}
		<-ended
	})

	t.Run("prints a line of JSON for each, and notes elsewhere", func(t *testing.T) {
		t.Parallel()
		l := startListen(t, "--json", "--secret", hookSecret)
		l.post(t, right, hookBody)
		l.post(t, right, "\x00\u202e\xff\u009b")
		l.stop()
		lines := strings.Split(strings.TrimSpace(l.out.String()), "\n")
		if len(lines) != 2 {
			t.Fatalf("%d lines:\n%s", len(lines), l.out.String())
		}
		var first, second struct {
			EventID      string `json:"event_id"`
			Verified     bool
			Status       int
			Body         string
			BodyEncoding string `json:"body_encoding"`
		}
		if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || first.EventID != "evt_1" || !first.Verified || first.Status != 204 || first.Body != hookBody || first.BodyEncoding != "text" {
			t.Errorf("error %v, %+v", err, first)
		}
		if err := json.Unmarshal([]byte(lines[1]), &second); err != nil || second.Verified || second.Status != 401 || second.BodyEncoding != "lossy" {
			t.Errorf("error %v, %+v", err, second)
		}
		if strings.ContainsAny(lines[1], "\u202e\u009b") {
			t.Errorf("not escaped: %q", lines[1])
		}
		if !strings.Contains(l.errs.String(), "Listening on") {
			t.Errorf("errors: %s", l.errs.String())
		}
	})

	t.Run("shows no control character of a stranger's", func(t *testing.T) {
		t.Parallel()
		l := startListen(t)
		h := http.Header{"X-Service-Event-Type": {"a\u202eb"}}
		l.post(t, h, "\x1b[2Jtext\r\u202e\xff é😀\n\tx")
		l.stop()
		_, got, _ := strings.Cut(l.out.String(), "signing secret.\n")
		if strings.ContainsAny(got, "\x1b\r\u202e") || !strings.Contains(got, `a\u202eb`) || !strings.Contains(got, `\x1b[2Jtext\r\u202e\xff é😀`) || !strings.Contains(got, `\tx`) {
			t.Errorf("%q", got)
		}
	})

	t.Run("shortens a long body", func(t *testing.T) {
		t.Parallel()
		long := "[" + strings.Repeat(`"x",`, 99) + `"` + strings.Repeat("y", 1000) + `"]`
		short, whole := startListen(t), startListen(t, "--json")
		for _, l := range []*listening{short, whole} {
			l.post(t, right, long)
			l.stop()
		}
		if got := short.out.String(); !strings.Contains(got, "… 78 more lines, 1400 bytes in total; use --json or --save for the complete body") || strings.Contains(got, "yyy") {
			t.Error(got)
		}
		if got := whole.out.String(); !strings.Contains(got, strings.Repeat("y", 1000)) || strings.Contains(got, "more lines") {
			t.Error(got)
		}
	})

	t.Run("takes no more than it should", func(t *testing.T) {
		t.Parallel()
		l := startListen(t)
		if status, _, _ := l.post(t, right, strings.Repeat("x", 5<<20)); status != 413 {
			t.Errorf("status %d", status)
		}
		resp, err := http.Get(l.url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 405 || resp.Header.Get("Allow") != "POST" {
			t.Errorf("status %d", resp.StatusCode)
		}
		l.stop()
		if got := l.out.String(); !strings.Contains(got, "responded with 405 to GET /,") || !strings.Contains(got, "responded with 413,") {
			t.Error(got)
		}
	})
}

func TestListenForwards(t *testing.T) {
	t.Parallel()
	right := signed(t, hookSecret, hookBody, time.Now().Unix())
	right.Set("X-Forwarded-For", "192.0.2.9") // by a tunnel
	var got http.Header
	var body string
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got, body = r.Header.Clone(), string(text)
		w.Header().Set("X-Mine", "yes")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "short and \x1bstout")
	}))
	defer program.Close()
	l := startListen(t, "--secret", hookSecret, "--forward", program.URL+"/hook")
	status, h, text := l.post(t, right, hookBody)
	if status != 418 || h.Get("X-Mine") != "yes" || text != "short and \x1bstout" || body != hookBody {
		t.Errorf("status %d, %v, %q; it got %q", status, h, text, body)
	}
	for name := range right {
		if got.Get(name) != right.Get(name) {
			t.Errorf("%s is %q", name, got.Get(name))
		}
	}
	program.Close()
	if status, _, _ := l.post(t, right, hookBody); status != 502 {
		t.Errorf("status %d", status)
	}
	l.stop()
	if out := l.out.String(); !strings.Contains(out, "response 418 after") || !strings.Contains(out, "the delivery could not be forwarded") {
		t.Error(out)
	}
}

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	taken := startListen(t)
	port := strings.TrimSuffix(strings.TrimPrefix(taken.url, "http://127.0.0.1:"), "/")
	for _, tt := range []struct {
		name, args string
		code       int
		stderr     string
	}{
		{"a port that is taken", "--port " + port, cli.ExitFailure, "give another port with --port"},
		{"a port that is none", "--port 70000", cli.ExitUsage, "must be a whole number from 0 to 65535"},
		{"a status of success", "--fail 204", cli.ExitUsage, "must be a status from 300 to 599"},
		{"a count of none", "--fail 503:0", cli.ExitUsage, "such as 503:3"},
		{"what is no status", "--fail often", cli.ExitUsage, "must be a status from 300 to 599"},
		{"a place to forward to that is none", "--forward localhost:3000", cli.ExitUsage, "--forward must be a URL, such as"},
		{"a directory to save in that is a file", "--save " + saved(t, ""), cli.ExitFailure, "--save: mkdir"},
		{"two secrets", "--secret a --secret-file " + saved(t, hookSecret), cli.ExitUsage, "exclude each other"},
		{"a subscription of no server", "--subscription x", cli.ExitUsage, "need --from"},
		{"a cursor of no server", "--cursor-file x", cli.ExitUsage, "need --from"},
		{"no types", "--from http://127.0.0.1:1 --token x --event-types=", cli.ExitUsage, "--event-types is empty"},
		{"a cursor without a subscription", "--from http://127.0.0.1:1 --token x --cursor-file c", cli.ExitUsage, "--cursor-file needs --subscription"},
		{"a server without a token", "--from http://127.0.0.1:1 --subscription x", cli.ExitUsage, "--from needs a token"},
		{"a server that is none", "--from 127.0.0.1:1 --subscription x --token x", cli.ExitUsage, "the URL of a server must be such as"},
		{"a cursor of a new subscription", "--from http://127.0.0.1:1 --event-types a --token x --cursor-file c", cli.ExitUsage, "cursor-file"},
		{"a server and a port", "--from http://127.0.0.1:1 --subscription x --token x --port 1", cli.ExitUsage, "port"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := execute(t, append([]string{"listen"}, strings.Fields(tt.args)...))
			if code != tt.code || stdout != "" || !strings.Contains(stderr, tt.stderr) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("code %d, output %q, errors %q", code, stdout, stderr)
			}
		})
	}
}
