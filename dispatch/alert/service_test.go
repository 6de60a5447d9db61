package alert_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/dispatch/alert"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/redact"
)

const (
	title = "Keyhook: title"
	body  = "First line.\n.\nLast line with é."
)

// channel parses one URL.
func channel(t *testing.T, raw string) alert.Channel {
	t.Helper()
	channels, err := alert.Channels([]redact.Text{redact.New(raw)})
	if err != nil {
		t.Fatal(err)
	}
	return channels[0]
}

// request is what a receiver got.
type request struct {
	path   string
	header http.Header
	body   string
}

// receive starts a receiver that answers with a status.
func receive(t *testing.T, status int) (address string, got chan request) {
	t.Helper()
	got = make(chan request, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got <- request{r.URL.Path, r.Header, string(text)}
		w.Header().Set("Location", "/elsewhere")
		if r.URL.Path == "/elsewhere" {
			status = http.StatusOK
		}
		w.WriteHeader(status)
		if status >= http.StatusBadRequest {
			fmt.Fprint(w, "<html>no JSON</html>")
			return
		}
		fmt.Fprint(w, "{}")
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), got
}

func TestHTTPServices(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		url  string
		want func(r request) bool
	}{
		"generic": {"generic://ADDRESS/hook?disabletls=yes", func(r request) bool { return r.path == "/hook" && r.body == body }},
		"generic with JSON": {"generic+http://ADDRESS/hook?template=json", func(r request) bool {
			var got map[string]string
			return json.Unmarshal([]byte(r.body), &got) == nil && got["title"] == title && got["message"] == body
		}},
		"a plain URL": {"http://ADDRESS/hook", func(r request) bool { return r.path == "/hook" && r.body == body }},
		"ntfy": {"ntfy://user:password@ADDRESS/topic?scheme=http", func(r request) bool {
			user, password, _ := (&http.Request{Header: r.header}).BasicAuth()
			return r.path == "/topic" && r.body == body && r.header.Get("Title") == title && user == "user" && password == "password"
		}},
		"gotify": {"gotify://ADDRESS/Atoken123456789?disabletls=yes", func(r request) bool {
			var got map[string]any
			return json.Unmarshal([]byte(r.body), &got) == nil && got["title"] == title && got["message"] == body
		}},
	} {
		t.Run(name, func(t *testing.T) {
			address, got := receive(t, http.StatusOK)
			c := channel(t, strings.ReplaceAll(tt.url, "ADDRESS", address))
			for range 2 {
				if _, err := c.Send(t.Context(), title, body); err != nil {
					t.Fatal(err)
				}
				if r := <-got; !tt.want(r) {
					t.Errorf("got %+v", r)
				}
			}
			for _, status := range []int{http.StatusForbidden, http.StatusBadGateway, http.StatusFound} {
				address, _ := receive(t, status)
				if _, err := channel(t, strings.ReplaceAll(tt.url, "ADDRESS", address)).Send(t.Context(), title, body); err == nil {
					t.Errorf("status %d is no error", status)
				}
			}
		})
	}
}

// transport answers requests to the hosts of services.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestRequestsToServices compares each request with the documents of its service.
func TestRequestsToServices(t *testing.T) {
	const text = "One & two <b>.\nA second line."
	for raw, want := range map[string]struct{ url, body string }{
		"slack://hook:T00000000-B00000000-abcdef@webhook": {
			"https://hooks.slack.com/services/T00000000/B00000000/abcdef",
			`{"text":"One &amp; two &lt;b&gt;.\nA second line."}`,
		},
		"discord://TOKEN-x@1234": {
			"https://discord.com/api/webhooks/1234/TOKEN-x",
			`{"allowed_mentions":{"parse":[]},"embeds":[{"description":"One & two <b>.\nA second line.","title":"Keyhook: title"}]}`,
		},
		"teams+https://x.example/hook?sig=y&v=1": {
			"https://x.example/hook?sig=y&v=1",
			`{"attachments":[{"content":{"$schema":"http://adaptivecards.io/schemas/adaptive-card.json","body":[{"text":"One & two <b>.\n\nA second line.",` +
				`"type":"TextBlock","wrap":true}],"type":"AdaptiveCard","version":"1.4"},"contentType":"application/vnd.microsoft.card.adaptive"}],"type":"message"}`,
		},
		"telegram://123456789:abcdefghijklmnopqrstuvwxyz@telegram?chats=@ops": {
			"https://api.telegram.org/bot123456789:abcdefghijklmnopqrstuvwxyz/sendMessage",
			`{"chat_id":"@ops","link_preview_options":{"is_disabled":true},"text":"One & two <b>.\nA second line."}`,
		},
		"gotify://push.example/base/AbcToken?disabletls=yes": {
			"http://push.example/base/message", `{"message":"One & two <b>.\nA second line.","priority":5,"title":"Keyhook: title"}`,
		},
		"https://user:pass@x.example/a%2Fb?template=json&tag=1&@X-Extra=yes": {
			"https://x.example/a%2Fb?tag=1", `{"kind":"test","message":"One & two <b>.\nA second line.","title":"Keyhook: title"}`,
		},
	} {
		var got *http.Request
		var body []byte
		restore := alert.Through(transport(func(r *http.Request) (*http.Response, error) {
			got, body = r, nil
			body, _ = io.ReadAll(r.Body)
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}))
		_, err := channel(t, raw).Send(t.Context(), title, text)
		restore()
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		var compact, expected any
		if json.Unmarshal(body, &compact) != nil || json.Unmarshal([]byte(want.body), &expected) != nil {
			t.Fatalf("%s: body %s", raw, body)
		}
		if d := cmp.Diff(expected, compact); got.URL.String() != want.url || got.Method != http.MethodPost || got.Header.Get("Content-Type") != "application/json" || d != "" {
			t.Errorf("%s: %s %s, body (-want +got):\n%s", raw, got.Method, got.URL, d)
		}
		if strings.HasPrefix(raw, "https:") && (got.Header.Get("X-Extra") != "yes" || got.Header.Get("Authorization") != "Basic dXNlcjpwYXNz") {
			t.Errorf("%s: header %v", raw, got.Header)
		}
	}
}

func TestAServiceThatCannotBeReached(t *testing.T) {
	defer alert.Through(transport(func(*http.Request) (*http.Response, error) { return nil, errors.New("no network here") }))()
	text, err := channel(t, "telegram://123456789:canary-abcdefghijklmnopqrstuvwxyzabc@telegram?chats=@canary").Send(t.Context(), title, body)
	if err == nil || !strings.Contains(text, "cannot talk to the service") || strings.Contains(text, "canary") {
		t.Errorf("text %q, error %v", text, err)
	}
}

// mailServer is a small SMTP server. It answers with the reply of a test to some commands.
type mailServer struct {
	address string
	replies map[string]string

	mu   sync.Mutex
	mail []string // commands and messages
}

func startMailServer(t *testing.T, replies map[string]string) *mailServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mailServer{address: l.Addr().String(), replies: replies}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { m.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return m
}

func (m *mailServer) serve(conn net.Conn) {
	defer conn.Close()
	fmt.Fprint(conn, "220 mail.example ESMTP\r\n")
	lines, inData := bufio.NewScanner(conn), false
	for lines.Scan() {
		line := lines.Text()
		m.mu.Lock()
		m.mail = append(m.mail, line)
		m.mu.Unlock()
		verb, _, _ := strings.Cut(strings.ToUpper(line), " ")
		reply, special := m.replies[verb]
		switch {
		case inData && line != ".":
			continue
		case inData:
			inData, reply = false, "250 queued"
		case special:
		case verb == "EHLO":
			reply = "250-mail.example\r\n250 AUTH PLAIN"
		case verb == "AUTH":
			reply = "235 welcome"
		case verb == "DATA":
			inData, reply = true, "354 go on"
		case verb == "QUIT":
			reply = "221 bye"
		default:
			reply = "250 ok"
		}
		if _, err := fmt.Fprint(conn, reply+"\r\n"); err != nil || verb == "QUIT" {
			return
		}
	}
}

func (m *mailServer) got() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.mail, "\n")
}

// zeros is text without an end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}

func TestMail(t *testing.T) {
	t.Parallel()
	const form = "smtp://canaryuser:canary%%40secret@%s/?from=keyhook@example.com&to=ops@example.com,boss@example.com"
	t.Run("arrives at each recipient", func(t *testing.T) {
		t.Parallel()
		m := startMailServer(t, nil)
		if _, err := channel(t, fmt.Sprintf(form, m.address)).Send(t.Context(), title, body); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"AUTH PLAIN", "MAIL FROM:<keyhook@example.com>", "RCPT TO:<ops@example.com>", "RCPT TO:<boss@example.com>", "Subject: " + title, "First line.\n..\nLast line with =C3=A9."} {
			if !strings.Contains(m.got(), want) {
				t.Errorf("no %q in:\n%s", want, m.got())
			}
		}
	})
	t.Run("that the server refuses is an error with the code of the server, and without the password", func(t *testing.T) {
		t.Parallel()
		m := startMailServer(t, map[string]string{"AUTH": "535 wrong password canary@secret of canaryuser"})
		text, err := channel(t, fmt.Sprintf(form, m.address)).Send(t.Context(), title, body)
		if err == nil || !strings.Contains(text, "the mail server answered 535") || strings.Contains(text, "canary") {
			t.Errorf("text %q, error %v", text, err)
		}
	})
	t.Run("to a server that offers encryption and has none sends no password", func(t *testing.T) {
		t.Parallel()
		m := startMailServer(t, map[string]string{"EHLO": "250-mail.example\r\n250-STARTTLS\r\n250 AUTH PLAIN", "STARTTLS": "220 go on"}) // and no handshake follows
		text, err := channel(t, fmt.Sprintf(form, m.address)).Send(t.Context(), title, body)
		if got := m.got(); err == nil || !strings.Contains(got, "STARTTLS") || strings.Contains(got, "AUTH") {
			t.Errorf("text %q, error %v, the server got:\n%s", text, err, got)
		}
	})
	t.Run("to a server without encryption or authentication sends no password, and the error says why", func(t *testing.T) {
		t.Parallel()
		m := startMailServer(t, map[string]string{"EHLO": "250 mail.example"})
		_, port, _ := net.SplitHostPort(m.address)
		for host, want := range map[string]string{
			"[::ffff:127.0.0.1]": "offers no encryption", // for net/smtp, this text is not this machine
			"127.0.0.1":          "offers no authentication",
		} {
			text, err := channel(t, fmt.Sprintf(form, host+":"+port)).Send(t.Context(), title, body)
			if got := m.got(); err == nil || !strings.Contains(text, want) || strings.Contains(got, "AUTH") {
				t.Errorf("text %q, want %q, error %v, the server got:\n%s", text, want, err, got)
			}
		}
	})
	t.Run("at port 465 begins with a handshake", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", fmt.Sprintf("127.1.%d.%d:465", os.Getpid()>>8&255, os.Getpid()&255)) // a test beside it has another address
		if err != nil {
			if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
				t.Fatal(err)
			}
			t.Skip("this user cannot listen at port 465: ", err) // a failure under KEYHOOK_TEST_REQUIRE
		}
		defer l.Close()
		first := make(chan byte, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "220 mail.example ESMTP\r\n")
			b, _ := bufio.NewReader(conn).ReadByte()
			first <- b
		}()
		_, err = channel(t, fmt.Sprintf(form, l.Addr())).Send(t.Context(), title, body)
		if b := <-first; err == nil || b != 0x16 { // of a TLS handshake, RFC 8446 section 5.1
			t.Errorf("the first byte is %#x, error %v", b, err)
		}
	})
	t.Run("to a server whose line does not end is an error, and is not read to the end", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		const most = 64 << 20 // more than the buffers of a connection
		read := make(chan bool, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			n, err := io.CopyN(conn, zeros{}, most)
			read <- err == nil && n == most
		}()
		if _, err = channel(t, fmt.Sprintf(form, l.Addr())).Send(t.Context(), title, body); err == nil || <-read {
			t.Errorf("%d MiB were read, error %v", most>>20, err)
		}
	})
	t.Run("without a server is an error with the reason", func(t *testing.T) {
		t.Parallel()
		text, err := channel(t, fmt.Sprintf(form, "127.0.0.1:1")).Send(t.Context(), title, body)
		if err == nil || !strings.Contains(text, "connection refused") {
			t.Errorf("text %q, error %v", text, err)
		}
	})
}

func TestAListOfURLs(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"canary":             "URL 1: the text is not a URL",
		"canary://host/path": "URL 1: the service is unknown",
		"canary%zz://host":   "URL 1: the text is not a URL",
		"ntfy://canary":      "URL 1: the URL of ntfy is wrong: the topic after the host is missing",
		"smtp://127.0.0.1:99999/?from=a@b.example&to=c@d.example": "the port must be from 1 to 65535",
		"ntfy://host:0/canary":                                               "the port must be from 1 to 65535",
		"ntfy:///canary":                                                     "the URL of ntfy has no host",
		"smtp://canary:canary@host/?to=x@y":                                  "from must be one address",
		"smtp://host/?canary=canary":                                         "the URL of smtp is wrong",
		"slack://canary":                                                     "the URL of slack is wrong: the form is hook:A-B-C@webhook",
		"telegram://canary@telegram":                                         "the URL of telegram is wrong: the token before @ is not one of a bot",
		"discord://canary":                                                   "the URL of discord is wrong: the token before @ is missing",
		"teams://canary@canary":                                              "the URL of teams is wrong",
		"ntfy+https://canary/canary":                                         "the service takes no + after its name",
		"https://hooks.slack.com/services/canary/canary/canary":              "write slack://hook:A-B-C@webhook",
		"https://discord.com/api/webhooks/canary/canary":                     "write discord://TOKEN@ID",
		"logger://canary":                                                    "URL 1: the service is unknown",
		"ntfy://host/topic?canary=canary":                                    "an option after ? is unknown",
		"ntfy://host/topic?scheme=canary":                                    "the scheme must be http or https",
		"gotify://canary":                                                    "the token after the host is missing",
		"smtp://host/?from=a@b.example&to=c@d.example&encryption=canary":     "an option after ? is unknown",
		"https://host/canary?template=canary":                                "template must be json, or be left out",
		"telegram://123456789:canary-abcdefghijklmnopqrstuvwxyzabc@telegram": "chats must name one channel or chat",
	} {
		_, err := alert.Channels([]redact.Text{redact.New(raw)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: got %v, want %q", raw, err, want)
		}
		if !errors.As(err, new(*fault.Advice)) {
			t.Errorf("%s: the error has no mend", raw)
		}
	}
	if _, err := alert.Channels([]redact.Text{redact.New("foo://x")}); !strings.Contains(err.Error(), "discord://, generic://, gotify://, ntfy://, slack://, smtp://, teams://, telegram://") {
		t.Errorf("the error names no services: %v", err)
	}
}

// TestTheFormsInTheDocument reads the table of the document "operating".
func TestTheFormsInTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../server/docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer(
		"from=FROM&to=TO,TO", "from=a@example.com&to=b@example.com,c@example.com",
		"A-B-C", "T00000000-B00000000-abcdefghijklmnopqrstuvwx", "telegram://TOKEN", "telegram://123456789:abcdefghijklmnopqrstuvwxyzabcdefghi",
		"teams+https://…", "teams+https://org.webhook.office.com/webhookb2/11111111-4444-4444-8444-cccccccccccc@22222222-4444-4444-8444-cccccccccccc/IncomingWebhook/33333333012222222222333333333344/44444444-4444-4444-8444-cccccccccccc/V2ESyij_gAljSoUQHvZoZYzlpAoAXExyOl26dlf1xHEx05",
	)
	_, section, _ := strings.Cut(string(text), "\n## Alerts\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| [^|]+ \\| `([^`]+)`(?:, or `([^`]+)`)?").FindAllStringSubmatch(section, -1)
	for _, row := range rows {
		for _, form := range row[1:] {
			if form != "" {
				channel(t, fill.Replace(form))
			}
		}
	}
	if len(rows) != 8 {
		t.Errorf("the table has %d services", len(rows))
	}
}

// TestNoErrorShowsASecret puts a secret in each place of each URL, and makes each way of sending fail.
func TestNoErrorShowsASecret(t *testing.T) {
	t.Parallel()
	refused := httptest.NewTLSServer(http.NotFoundHandler()) // its certificate is not trusted
	t.Cleanup(refused.Close)
	for _, secret := range []string{"canary", "can\"ary\\", "ca nary", "cañary-ca_nary", "canary@%/?#&=:;+"} {
		q, p := url.QueryEscape(secret), url.PathEscape(secret)
		user := url.UserPassword(secret, secret).String()
		for _, address := range []string{"127.0.0.1:1", refused.Listener.Addr().String(), "no-such-host.invalid", "[::1]:0"} {
			mail := "smtp://" + user + "@" + address
			if address == refused.Listener.Addr().String() {
				mail = "smtp://" + user + "@127.0.0.1:1" // this server would wait for the client, as the client for it
			}
			for _, raw := range []string{
				"generic://" + address + "/" + p + "?x=" + q + "&@X-Secret=" + q,
				"generic://" + user + "@" + address + "/?template=" + q,
				"generic://" + address + "/?method=" + q,
				"https://" + user + "@" + address + "/" + p + "?" + q,
				"ntfy://" + user + "@" + address + "/" + p + "?title=" + q,
				"ntfy://" + user + "@" + address + "/" + p + "?priority=" + q,
				"gotify://" + address + "/" + p + "/" + p + "?priority=" + q,
				"gotify://" + address + "/A" + p + "?disabletls=yes",
				mail + "/?from=" + q + "&to=" + q,
				mail + "/?from=" + q + "&to=" + q + "&auth=" + q,
				mail + "/?from=a@b.example&to=c@d.example&timeout=" + q,
			} {
				channels, err := alert.Channels([]redact.Text{redact.New(raw)})
				text := fmt.Sprint(err)
				if err == nil {
					text, _ = channels[0].Send(t.Context(), title, body)
				}
				for _, part := range []string{secret, q, p, "canary", "cañary", "ca_nary"} {
					if strings.Contains(strings.ToLower(text), part) {
						t.Errorf("%s shows %q: %s", raw, part, text)
					}
				}
			}
		}
	}
}

func TestSendTestEnds(t *testing.T) {
	t.Parallel()
	address, got := receive(t, http.StatusOK)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := channel(t, "ntfy://"+address+"/topic?scheme=http").SendTest(ctx, "https://keys.example.com"); err != nil {
		t.Fatal(err)
	}
	if r := <-got; !strings.Contains(r.body, "This is a test.") || !strings.Contains(r.body, "https://keys.example.com") {
		t.Errorf("got %+v", r)
	}
}
