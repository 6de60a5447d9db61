package signature_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// program returns the program in the given language from the document for receivers.
func program(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile("../../server/docs/receiving.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n```"+language+"\n")
	code, _, closed := strings.Cut(rest, "\n```\n")
	if !found || !closed || strings.Contains(rest, "\n```"+language+"\n") {
		t.Fatalf("the document does not show one program in %s", language)
	}
	return code + "\n"
}

// output holds what a program has printed. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// runProgram starts a program with the given secret on a free port. It returns its address and its output. The program
// ends with the test.
func runProgram(t *testing.T, secret, name, code string, command ...string) (address string, printed *output) {
	t.Helper()
	if _, err := exec.LookPath(command[0]); err != nil {
		if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
			t.Fatalf("%s is not installed", command[0])
		}
		t.Skipf("%s is not installed", command[0])
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if command[0] == "go" { // a killed `go run` would leave the program running
		build := exec.Command("go", "build", "-o", "receiver", name)
		build.Dir = dir
		build.Env = append(os.Environ(), "GOFLAGS=", "GO111MODULE=off")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		command = []string{filepath.Join(dir, "receiver")}
	} else {
		command = append(command, name)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(address)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "WEBHOOK_SECRET="+secret, "PORT="+port)
	printed = new(output)
	cmd.Stdout, cmd.Stderr = printed, printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() { cancel(); <-ended })
	for deadline := time.Now().Add(30 * time.Second); ; <-time.After(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			if conn.LocalAddr().String() != address { // Linux may connect a port that nobody listens on to itself
				return address, printed
			}
		}
		select {
		case <-ended:
			return "", printed
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not listen:\n%s", printed)
		}
	}
}

// refusesFlood reports whether the program at the address refuses a body of 64 MiB before it has all of it.
func refusesFlood(t *testing.T, address string) bool {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /hook HTTP/1.1\r\nHost: receiver\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", 64<<20)
	for range 64 {
		if err == nil {
			_, err = conn.Write(make([]byte, 1<<20))
		}
	}
	return err != nil
}

// The programs of the document accept genuine deliveries and refuse all others.
func TestTheProgramsOfTheDocument(t *testing.T) {
	t.Parallel()
	for _, p := range []struct{ language, file, command string }{
		{"go", "receiver.go", "go"}, {"js", "receiver.mjs", "node"}, {"python", "receiver.py", "python3"},
	} {
		t.Run("in "+p.language, func(t *testing.T) {
			t.Parallel()
			code := program(t, p.language)
			var address string
			var printed *output
			for tries := 0; address == "" && tries < 3; tries++ { // another process may take its port first
				address, printed = runProgram(t, newSecret, p.file, code, p.command)
			}
			if address == "" {
				t.Fatalf("it ended at once:\n%s", printed)
			}
			send := func(h http.Header, body string) int {
				req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+"/hook", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header = h
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatalf("%v\n%s", err, printed)
				}
				resp.Body.Close()
				return resp.StatusCode
			}
			now := time.Now().Unix()
			header := func(signature, stamp string) http.Header {
				return http.Header{"X-Service-Signature": {signature}, "X-Service-Timestamp": {stamp}, "Content-Type": {"application/json"}}
			}
			event := func(id string) string {
				return `{"id":"` + id + `","type":"order.paid","data":{"name":"Zoë 😀", "slash":"a/b", "number":1.50}}`
			}
			signed := func(body string, at int64) http.Header {
				return header(signHex(t, newSecret, at, body), strconv.FormatInt(at, 10))
			}
			previous := header(signHex(t, otherSecret, now, event("evt_3")), strconv.FormatInt(now, 10))
			previous.Set("X-Service-Signature-Previous", signHex(t, newSecret, now, event("evt_3")))
			half, err := net.Dial("tcp", address) // a sender that goes away ends no program
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(half, "POST /hook HTTP/1.1\r\nHost: receiver\r\nConnection: close\r\nContent-Length: 9\r\n\r\n{")
			if err := half.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, half) // until the program has ended it
			half.Close()
			if !refusesFlood(t, address) {
				t.Error("it reads 64 MiB of a sender without a signature")
			}
			large := `{"id":"evt_4","type":"a","data":{"text":"` + strings.Repeat("x", 255<<10) + `"}}`
			for _, c := range []struct {
				name   string
				header http.Header
				body   string
				want   int
			}{
				{"a genuine one", signed(event("evt_1"), now), event("evt_1"), 204},
				{"the same again", signed(event("evt_1"), now), event("evt_1"), 204},
				{"one that is four minutes old", signed(event("evt_2"), now-240), event("evt_2"), 204},
				{"one in an overlap, for who has the old secret", previous, event("evt_3"), 204},
				{"as large as they come", signed(large, now), large, 204},
				{"another body", signed(event("evt_1"), now), event("evt_8"), 401},
				{"a body with a line feed more", signed(event("evt_1"), now), event("evt_1") + "\n", 401},
				{"too old", signed(event("evt_8"), now-360), event("evt_8"), 401},
				{"too new", signed(event("evt_8"), now+360), event("evt_8"), 401},
				{"another timestamp than the signed one", header(signHex(t, newSecret, now, event("evt_8")), strconv.FormatInt(now+1, 10)), event("evt_8"), 401},
				{"another secret", header(signHex(t, otherSecret, now, event("evt_8")), strconv.FormatInt(now, 10)), event("evt_8"), 401},
				{"no headers", http.Header{}, event("evt_8"), 401},
				{"headers without a value", header("", ""), event("evt_8"), 401},
				{"a signature that is too short", header("00", strconv.FormatInt(now, 10)), event("evt_8"), 401},
				{"a timestamp that is no number", header(signHex(t, newSecret, now, event("evt_8")), "now"), event("evt_8"), 401},
				{"a timestamp beyond all numbers", header(signHex(t, newSecret, now, event("evt_8")), strings.Repeat("9", 5000)), event("evt_8"), 401},
			} {
				if got := send(c.header, c.body); got != c.want {
					t.Errorf("%s: status %d, want %d\n%s", c.name, got, c.want, printed)
				}
			}
			for id, want := range map[string]int{"evt_1": 1, "evt_2": 1, "evt_3": 1, "evt_4": 1, "evt_8": 0} {
				if got := strings.Count(printed.String(), fmt.Sprintf("handled %s ", id)); got != want {
					t.Errorf("%s was handled %d times, want %d", id, got, want)
				}
			}

			if address, printed := runProgram(t, "", p.file, code, p.command); address != "" || !strings.Contains(printed.String(), "is not set") {
				t.Errorf("it runs without a secret: %s", printed)
			}
		})
	}
}
