package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keyhook/keyhook/storage/storagetest"
)

// asProgram in the environment has the test binary be keyhook itself, so that whole processes can be started and killed.
// It is no setting, and so reaches the processes that the program itself starts.
const asProgram = "TEST_AS_KEYHOOK"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// keyhook returns a command that runs the program with the given arguments, away from the settings of this machine.
func keyhook(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{asProgram + "=1", "TMPDIR=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	return cmd
}

// process is a running `keyhook serve`.
type process struct {
	cmd     *exec.Cmd
	url     string
	metrics string // host:port of their own listener; empty without one
	stdout  printed
	before  string        // what it said before it was ready
	stderr  *bytes.Buffer // what it says after it is ready; to be read after end
	silent  chan struct{} // closed when it says nothing more
}

// printed is what a process has written to its standard output. It is a file, so that all that was written before the
// process was ready is there once it is.
type printed string

func (p printed) String() string {
	text, err := os.ReadFile(string(p))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

const operatorToken = "an-operator-token-for-tests"

// start runs `serve` in dir, whose database it keeps between runs, and waits until it is ready.
func start(t testing.TB, dir string, settings ...string) *process {
	t.Helper()
	return startAt(t, "127.0.0.1:0", dir, settings...)
}

// startAt is start with an address of one's choice.
func startAt(t testing.TB, address, dir string, settings ...string) *process {
	t.Helper()
	cmd := keyhook(t, "serve", "--dev", "--listen="+address, "--log.format=json")
	cmd.Dir = dir
	cmd.Env = append(append(cmd.Env, "KEYHOOK_BOOTSTRAP_TOKEN="+operatorToken), settings...)
	stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	p := &process{cmd: cmd, stdout: printed(stdout.Name()), stderr: new(bytes.Buffer), silent: make(chan struct{})}
	cmd.Stdout = stdout
	logged, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	lines := bufio.NewScanner(logged)
	lines.Buffer(nil, 1<<20)
	var seen strings.Builder
	for lines.Scan() {
		var line struct{ Msg, URL, Address string }
		seen.WriteString(lines.Text() + "\n")
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		switch line.Msg {
		case "metrics have a listener of their own":
			p.metrics = line.Address
		case "ready":
			p.url, p.before = line.URL, seen.String()
			go func() { // ends with the process
				defer close(p.silent)
				for lines.Scan() {
					p.stderr.WriteString(lines.Text() + "\n")
				}
			}()
			return p
		}
	}
	t.Fatalf("serve ended before it was ready: %v\n%s", cmd.Wait(), seen.String())
	return nil
}

// end sends a signal, waits, and returns the exit code, -1 after a signal that kills.
func (p *process) end(s os.Signal) int {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Signal(s) // it may have ended by itself
		if p.url != "" {
			<-p.silent
		}
		_ = p.cmd.Wait() // the exit code says it
	}
	return p.cmd.ProcessState.ExitCode()
}

// call makes a request as the operator and reads the answer into result, unless that is nil. It returns the status, and
// an error where there was no answer.
func (p *process) call(method, path, body string, result any) (int, error) {
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+operatorToken)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if result == nil || resp.StatusCode >= 300 {
		return resp.StatusCode, nil
	}
	return resp.StatusCode, json.Unmarshal(text, result)
}

// must is call for what must succeed.
func (p *process) must(t testing.TB, method, path, body string, result any) {
	t.Helper()
	if status, err := p.call(method, path, body, result); err != nil || status >= 300 {
		t.Fatalf("%s %s: status %d, error %v", method, path, status, err)
	}
}

func TestServe(t *testing.T) {
	t.Parallel()

	t.Run("prints a token of the first operator until somebody has made an authenticated request", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		tokenOf := func(p *process) string {
			_, rest, found := strings.Cut(p.stdout.String(), "kat_")
			if !found {
				t.Fatalf("no token was printed: %s", p.stdout)
			}
			return "kat_" + rest[:36]
		}
		p := start(t, dir, "KEYHOOK_BOOTSTRAP_TOKEN=")
		for _, path := range []string{"/healthz", "/metrics"} { // which ask for no credential here
			resp, err := http.Get(p.url + path)
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("%s: %v, %v", path, resp, err)
			}
			resp.Body.Close()
		}
		if code := p.end(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
		replaced := tokenOf(p)
		again := start(t, dir, "KEYHOOK_BOOTSTRAP_TOKEN=")
		for token, want := range map[string]int{replaced: 401, tokenOf(again): 200} {
			req, _ := http.NewRequest("GET", again.url+"/api/v1/whoami", nil)
			req.Header.Set("Authorization", "Bearer "+token)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("a token got %d, want %d", resp.StatusCode, want)
			}
		}
		again.end(syscall.SIGTERM)
		third := start(t, dir, "KEYHOOK_BOOTSTRAP_TOKEN=")
		third.end(syscall.SIGTERM)
		if third.stdout.String() != "" {
			t.Errorf("printed after somebody had made an authenticated request: %s", third.stdout)
		}
	})

	t.Run("prints no token after a health check and a command over the socket, because of the command", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		for i, command := range [][]string{{"healthcheck"}, {"api", "GET", "whoami/"}, {"healthcheck"}} {
			p := start(t, dir, "KEYHOOK_BOOTSTRAP_TOKEN=")
			cmd := keyhook(t, command...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil && command[0] != "healthcheck" { // which may come too soon after the start
				t.Errorf("%v: %v %s", command, err, out)
			}
			p.end(syscall.SIGTERM)
			if printed := strings.Contains(p.stdout.String(), "kat_"); printed != (i < 2) {
				t.Errorf("start %d: printed %s", i, p.stdout)
			}
		}
	})

	t.Run("prints no secret that was set", func(t *testing.T) {
		t.Parallel()
		p := start(t, t.TempDir())
		p.end(syscall.SIGTERM)
		if strings.Contains(p.stdout.String(), operatorToken) || strings.Contains(p.stdout.String(), "kat_") {
			t.Errorf("printed %s", p.stdout)
		}
	})

	t.Run("refuses a file that another process owns, and says which", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		p := start(t, dir)
		second := keyhook(t, "serve", "--listen=127.0.0.1:0")
		second.Dir = dir
		out, err := second.CombinedOutput()
		if err == nil || !strings.Contains(string(out), strconv.Itoa(p.cmd.Process.Pid)) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("error %v, output %s", err, out)
		}
	})

	t.Run("refuses a port in use before it touches a file", func(t *testing.T) {
		t.Parallel()
		p := start(t, t.TempDir())
		second := keyhook(t, "serve", "--listen="+strings.TrimPrefix(p.url, "http://"))
		out, err := second.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "server.listen") {
			t.Errorf("error %v, output %s", err, out)
		}
		if left, _ := filepath.Glob(filepath.Join(second.Dir, "*")); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
	})

	t.Run("finishes what is on the wire when told to stop", func(t *testing.T) {
		t.Parallel()
		arrived, answer := make(chan struct{}), make(chan struct{})
		receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(arrived)
			<-answer
		}))
		defer receiver.Close()
		dir := t.TempDir()
		p := start(t, dir)
		var sub struct{ ID string }
		p.must(t, "POST", "/api/v1/webhooks/subscriptions/", `{"url":"`+receiver.URL+`"}`, &sub)
		p.must(t, "POST", "/api/v1/events/", `{"type":"a","data":{}}`, nil)
		await(t, arrived)
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		close(answer)
		if code := p.end(syscall.Signal(0)); code != 0 {
			t.Errorf("exit code %d", code)
		}
		var log struct{ Data []struct{ Outcome string } }
		start(t, dir).must(t, "GET", "/api/v1/webhooks/subscriptions/"+sub.ID+"/deliveries/", "", &log)
		if len(log.Data) != 1 || log.Data[0].Outcome != "succeeded" {
			t.Errorf("the log holds %+v", log.Data)
		}
	})

	t.Run("ends at once at the second signal", func(t *testing.T) {
		t.Parallel()
		arrived, answer := make(chan struct{}), make(chan struct{})
		receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(arrived)
			<-answer
		}))
		defer receiver.Close()
		defer close(answer)
		p := start(t, t.TempDir())
		p.must(t, "POST", "/api/v1/webhooks/subscriptions/", `{"url":"`+receiver.URL+`"}`, nil)
		p.must(t, "POST", "/api/v1/events/", `{"type":"a","data":{}}`, nil)
		await(t, arrived)
		began := time.Now()
		// The signals of one kind may fall together, so the two are of different kinds.
		if err := errors.Join(p.cmd.Process.Signal(syscall.SIGTERM), p.cmd.Process.Signal(os.Interrupt)); err != nil {
			t.Fatal(err)
		}
		if code := p.end(syscall.Signal(0)); code != 1 || time.Since(began) > 30*time.Second {
			t.Errorf("exit code %d after %s", code, time.Since(began))
		}
	})
}

// nobody is the user whom programs run as that may not use a file, where this is root.
const nobody = 65534

// unprivileged has cmd run as a user without rights, and returns the id of that user. The program is reached through a
// descriptor, because the directory that it stands in is closed to others.
func unprivileged(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	if os.Getuid() != 0 {
		return os.Getuid()
	}
	program, err := os.Open(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{program}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	for dir := cmd.Dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return nobody
}

// give makes files belong to a user, if this is root.
func give(t *testing.T, uid int, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.Chown(name, uid, uid); err != nil && os.Getuid() == 0 {
			t.Fatal(err)
		}
	}
}

// contents reads what a refused start must leave as it was.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range []string{"keyhook.db", "keyhook.db.key"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		all[name] = fmt.Sprintf("%t %x", err == nil, sha256.Sum256(text))
	}
	return all
}

// TestRefusals starts a server where it must not start: each refusal has its exit code, is one sentence that says what to
// do, and leaves the files as they were.
func TestRefusals(t *testing.T) {
	t.Parallel()
	made := t.TempDir() // a database and its key
	_, stop := storagetest.OpenWith(t, storagetest.Options(t, filepath.Join(made, "keyhook.db")))
	stop()
	alter := func(statement string) func(*testing.T, *exec.Cmd) []string {
		return func(t *testing.T, cmd *exec.Cmd) []string {
			db, err := sql.Open("sqlite", "file:"+filepath.Join(cmd.Dir, "keyhook.db"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(statement); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			return nil
		}
	}
	must := func(t *testing.T, errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		// prepare changes a directory that holds a database and its key, and how serve is called there. It returns what the
		// sentence must say besides.
		prepare func(t *testing.T, cmd *exec.Cmd) []string
		code    int
		says    string
	}{
		{"a setting that is unknown", func(_ *testing.T, cmd *exec.Cmd) []string {
			cmd.Env = append(cmd.Env, "KEYHOOK_WEBHOOKS_TIMOUT=5s")
			return []string{"KEYHOOK_WEBHOOKS_TIMEOUT"}
		}, 2, "KEYHOOK_WEBHOOKS_TIMOUT: is no setting"},
		{"a certificate that is not there", func(_ *testing.T, cmd *exec.Cmd) []string {
			cmd.Args = append(cmd.Args, "--server.tls_cert_file=none.crt", "--server.tls_key_file=none.key")
			return []string{"none.crt"}
		}, 2, "server.tls_cert_file"},
		{"authorities that are not there", func(_ *testing.T, cmd *exec.Cmd) []string {
			cmd.Args = append(cmd.Args, "--egress.ca_file=none.pem")
			return []string{"none.pem"}
		}, 2, "egress.ca_file"},
		{"a newer schema", alter("PRAGMA user_version = 99"), 3, "has schema 99 and this binary knows 1"},
		{"a schema that was changed", alter("CREATE TABLE notes (id INTEGER)"), 4, "+ table notes"},
		{"another application's file", alter("PRAGMA application_id = 7"), 4, "set storage.path to another file"},
		{"garbage", func(t *testing.T, cmd *exec.Cmd) []string {
			must(t, os.WriteFile(filepath.Join(cmd.Dir, "keyhook.db"), bytes.Repeat([]byte("no database. "), 999), 0o600))
			return []string{"left as it is", "storage.path", filepath.Join(cmd.Dir, "keyhook.db")}
		}, 4, "not a Keyhook database"},
		{"a file of which half is gone", func(t *testing.T, cmd *exec.Cmd) []string {
			must(t, os.Truncate(filepath.Join(cmd.Dir, "keyhook.db"), 40960))
			return []string{"backup", filepath.Join(cmd.Dir, "keyhook.db")}
		}, 4, "database is damaged"},
		{"a file that a crash has left damaged", func(t *testing.T, cmd *exec.Cmd) []string {
			db, err := sql.Open("sqlite", "file:"+filepath.Join(cmd.Dir, "keyhook.db"))
			must(t, err)
			var page int64
			must(t, db.QueryRow("SELECT rootpage FROM sqlite_schema WHERE name = 'attempts'").Scan(&page), db.Close())
			file, err := os.OpenFile(filepath.Join(cmd.Dir, "keyhook.db"), os.O_WRONLY, 0)
			must(t, err)
			_, err = file.WriteAt(bytes.Repeat([]byte{0xff}, 4096), (page-1)*4096)
			must(t, err)
			// A write-ahead log that is there at the start is what a crash leaves.
			must(t, file.Close(), os.WriteFile(filepath.Join(cmd.Dir, "keyhook.db-wal"), make([]byte, 32), 0o600))
			return []string{"backup", filepath.Join(cmd.Dir, "keyhook.db"), "btreeInitPage"} // which is what a check says
		}, 4, "database is damaged"},
		{"an empty file beside a key", func(t *testing.T, cmd *exec.Cmd) []string {
			must(t, os.Truncate(filepath.Join(cmd.Dir, "keyhook.db"), 0))
			return []string{"keyhook.db.key", "backup", "start anew"}
		}, 4, "empty or gone"},
		{"no file beside a key", func(t *testing.T, cmd *exec.Cmd) []string {
			must(t, os.Remove(filepath.Join(cmd.Dir, "keyhook.db")))
			return []string{"keyhook.db.key", "backup", "start anew"}
		}, 4, "empty or gone"},
		{"no file where there was one, whose key is a setting", func(t *testing.T, cmd *exec.Cmd) []string {
			must(t, os.Remove(filepath.Join(cmd.Dir, "keyhook.db")), os.Remove(filepath.Join(cmd.Dir, "keyhook.db.key")))
			cmd.Env = append(cmd.Env, "KEYHOOK_ENCRYPTION_KEY="+strings.Repeat("ab", 32))
			start(t, cmd.Dir, cmd.Env...).end(syscall.SIGTERM)
			must(t, os.Remove(filepath.Join(cmd.Dir, "keyhook.db")))
			return []string{"keyhook.db.lock says that one was made here", "backup", "start anew"}
		}, 4, "empty or gone"},
		{"a directory in place of the file", func(t *testing.T, cmd *exec.Cmd) []string {
			must(t, os.Mkdir(filepath.Join(cmd.Dir, "other"), 0o700))
			cmd.Args = append(cmd.Args, "--storage.path=other")
			return []string{"storage.path"}
		}, 4, "not a regular file"},
		{"a key that is gone", func(t *testing.T, cmd *exec.Cmd) []string {
			must(t, os.Remove(filepath.Join(cmd.Dir, "keyhook.db.key")))
			return []string{"keyhook.db.key is gone", "encryption.key"}
		}, 5, "encryption key is missing"},
		{"another key", func(_ *testing.T, cmd *exec.Cmd) []string {
			cmd.Env = append(cmd.Env, "KEYHOOK_ENCRYPTION_KEY="+strings.Repeat("ab", 32))
			return []string{"encryption.key"}
		}, 5, "does not fit the database"},
		{"a key file that holds no key", func(t *testing.T, cmd *exec.Cmd) []string {
			must(t, os.WriteFile(filepath.Join(cmd.Dir, "keyhook.db.key"), []byte("hunter2\n"), 0o600))
			return nil
		}, 5, "keyhook.db.key"},
		{"a file that another process owns", func(t *testing.T, cmd *exec.Cmd) []string {
			p := start(t, cmd.Dir)
			return []string{"stop that one first", strconv.Itoa(p.cmd.Process.Pid)}
		}, 6, "database is in use"},
		{"a port in use", func(t *testing.T, cmd *exec.Cmd) []string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			t.Cleanup(func() { l.Close() })
			cmd.Args = append(cmd.Args, "--listen="+l.Addr().String())
			return []string{"server.listen", l.Addr().String(), "stop what listens there"}
		}, 7, "cannot listen"},
		{"an address of another machine", func(_ *testing.T, cmd *exec.Cmd) []string {
			cmd.Args = append(cmd.Args, "--metrics.listen=192.0.2.1:80")
			return []string{"metrics.listen"}
		}, 7, "this machine has no such address"},
		{"no directory", func(_ *testing.T, cmd *exec.Cmd) []string {
			cmd.Args = append(cmd.Args, "--storage.path=no/such/keyhook.db")
			return []string{"storage.path", "mkdir -p no/such"}
		}, 8, "there is no directory no/such"},
		{"a directory of another user", func(t *testing.T, cmd *exec.Cmd) []string {
			uid := unprivileged(t, cmd)
			must(t, os.Chmod(cmd.Dir, 0o555))
			t.Cleanup(func() { os.Chmod(cmd.Dir, 0o755) }) //nolint:errcheck // it is removed next
			if uid != nobody {
				return []string{"chmod u+rwx " + cmd.Dir}
			}
			return []string{"uid 65534, gid 65534", "uid 0, gid 0, mode 0555", "run as root: chown 65534:65534 " + cmd.Dir + ",", "storage.path"}
		}, 8, "may not be used by this process"},
		{"a database of another user", func(t *testing.T, cmd *exec.Cmd) []string {
			if unprivileged(t, cmd) != nobody {
				require(t, "root")
			}
			give(t, nobody, cmd.Dir)
			return []string{"uid 0, gid 0, mode 0600", "run as root: chown 65534:65534 " + filepath.Join(cmd.Dir, "keyhook.db") + ","}
		}, 8, "keyhook.db may not be used by this process"},
		{"a database that may not be written", func(t *testing.T, cmd *exec.Cmd) []string {
			uid, file := unprivileged(t, cmd), filepath.Join(cmd.Dir, "keyhook.db")
			must(t, os.Chmod(file, 0o444))
			give(t, uid, cmd.Dir, file, file+".key")
			return []string{"mode 0444; run: chmod u+rw " + file + ","}
		}, 8, "keyhook.db may not be used by this process"},
		{"a key file that may not be read", func(t *testing.T, cmd *exec.Cmd) []string {
			uid, file := unprivileged(t, cmd), filepath.Join(cmd.Dir, "keyhook.db")
			must(t, os.Chmod(file+".key", 0o000))
			give(t, uid, cmd.Dir, file, file+".key")
			return []string{"mode 0000; run: chmod u+rw " + file + ".key,"}
		}, 8, "keyhook.db.key may not be used by this process"},
		{"a network file system", func(t *testing.T, cmd *exec.Cmd) []string {
			if os.Getuid() != 0 || runtime.GOOS != "linux" {
				require(t, "root on Linux")
			}
			unshare, err := exec.LookPath("unshare")
			if err != nil {
				require(t, "unshare")
			}
			// What the kernel tells of mounts is covered by a file, for this process alone.
			table := filepath.Join(t.TempDir(), "mountinfo")
			must(t, os.WriteFile(table, []byte("1 0 254:1 / / rw - ext4 /dev/vda rw\n2 1 0:60 / "+cmd.Dir+" rw - nfs4 host:/export rw\n"), 0o600))
			script := `mount --bind "$0" /proc/$$/mountinfo && exec "$@"`
			cmd.Args = append([]string{unshare, "--mount", "sh", "-c", script, table, cmd.Path}, cmd.Args[1:]...)
			cmd.Path = unshare
			return []string{cmd.Dir, "storage.path", "local disk"}
		}, 8, "is on nfs4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := keyhook(t, "serve", "--listen=127.0.0.1:0")
			for _, name := range []string{"keyhook.db", "keyhook.db.key"} {
				text, err := os.ReadFile(filepath.Join(made, name))
				must(t, err, os.WriteFile(filepath.Join(cmd.Dir, name), text, 0o600))
			}
			says := append(tt.prepare(t, cmd), tt.says)
			before := contents(t, cmd.Dir)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			context.AfterFunc(ctx, func() { cmd.Process.Kill() }) //nolint:errcheck // it has ended then
			began := time.Now()
			if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != tt.code {
				t.Fatalf("error %v, want exit code %d:\n%s", err, tt.code, stderr.String())
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			sentence := ""
			for line := range strings.Lines(stderr.String()) {
				if strings.HasPrefix(line, "keyhook: ") {
					sentence += line
				} else if strings.HasPrefix(line, "{") == (sentence != "") && tt.says != "+ table notes" {
					t.Errorf("neither log nor sentence: %s", line)
				}
			}
			if tt.says == "+ table notes" { // which is a list
				sentence = stderr.String()
			}
			t.Log(sentence)
			for _, part := range says {
				if !strings.Contains(sentence, part) {
					t.Errorf("it does not say %q: %s", part, sentence)
				}
			}
			if stdout.Len() > 0 {
				t.Errorf("output: %s", stdout.String())
			}
			if tt.code != 6 { // whose owner is at work
				if after := contents(t, cmd.Dir); !maps.Equal(before, after) {
					t.Errorf("the files were %v and are %v", before, after)
				}
			}
		})
	}
}

// TestFailStop takes the files away from a server at work: it stops at once and says why, nobody is told afterwards that
// anything was kept, and what stands in the file's place is left alone.
func TestFailStop(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		take func(path string) error
		busy bool
		says string
		next int // the exit code of the next start; 0: it starts
	}{
		{"removed", func(path string) error {
			return errors.Join(os.Remove(path), os.Remove(path+"-wal"), os.Remove(path+"-shm"))
		}, true, "keyhook.db was removed beneath the running process", 4},
		{"removed while nothing happens", func(path string) error { return os.Remove(path) }, false, "keyhook.db was removed", 4},
		{"replaced", func(path string) error {
			return errors.Join(os.WriteFile(path+".other", []byte("another file"), 0o600), os.Rename(path+".other", path))
		}, true, "keyhook.db was replaced beneath the running process", 4},
		{"robbed of the log", func(path string) error { return os.Remove(path + "-wal") }, true, "keyhook.db-wal was removed", 0},
		{"robbed of the lock", func(path string) error { return os.Remove(path + ".lock") }, true, "keyhook.db.lock was removed", 0},
		{"moved with its directory", func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+".moved") }, true, "was removed", 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "keyhook.db")
			p := start(t, dir)
			var mu sync.Mutex
			var taken time.Time
			accepted, late := 0, 0
			enough := make(chan struct{})
			publish := func() error {
				began := time.Now()
				status, err := p.call("POST", "/api/v1/events/", `{"type":"a","data":{}}`, nil)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && status == http.StatusAccepted {
					if accepted++; accepted == 50 {
						close(enough)
					}
					if !taken.IsZero() && began.After(taken) {
						late++
					}
				}
				return err
			}
			var publishers sync.WaitGroup
			if tt.busy {
				for range 4 {
					publishers.Go(func() {
						for publish() == nil {
						}
					})
				}
				await(t, enough)
			}
			if err := tt.take(path); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			taken = time.Now()
			mu.Unlock()
			left := contents(t, dir)
			await(t, p.silent)
			code := p.end(syscall.Signal(0))
			took := time.Since(taken)
			publishers.Wait()
			if code != 74 || took > 5*time.Second {
				t.Errorf("exit code %d after %s", code, took)
			}
			if late > 0 {
				t.Errorf("%d events were accepted that began after the file was gone", late)
			}
			logged := p.stderr.String()
			if !strings.Contains(logged, `"level":"ERROR","msg":"stopping at once`) || strings.Count(logged, "keyhook: ") != 1 || !strings.Contains(logged, tt.says) {
				t.Errorf("it said:\n%s", logged)
			}
			if after := contents(t, dir); !maps.Equal(left, after) && !strings.HasPrefix(tt.name, "robbed") {
				t.Errorf("the files were %v and are %v", left, after)
			}
			t.Logf("%d accepted, ended after %s: %s", accepted, took, logged[strings.LastIndex(logged, "keyhook: "):])
			if tt.next == 0 {
				start(t, dir)
				return
			}
			next := keyhook(t, "serve", "--listen=127.0.0.1:0", "--storage.path="+path)
			time.AfterFunc(20*time.Second, func() { next.Process.Kill() }) //nolint:errcheck // it has ended then
			if out, err := next.CombinedOutput(); next.ProcessState.ExitCode() != tt.next {
				t.Errorf("the next start: %v\n%s", err, out)
			}
		})
	}
}

// TestFlushFails has the kernel refuse to flush: the process ends before it acknowledges anything more, and the next one
// checks the file.
func TestFlushFails(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		require(t, "strace")
	}
	dir := t.TempDir()
	p := start(t, dir)
	for range 20 {
		p.must(t, "POST", "/api/v1/events/", `{"type":"a","data":{}}`, nil)
	}
	inject := exec.Command(strace, "-f", "-qq", "-o", filepath.Join(t.TempDir(), "calls"), "-p", strconv.Itoa(p.cmd.Process.Pid),
		"-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO")
	if err := inject.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inject.Wait() }) // it ends with the process that it watches
	accepted := 0
	for deadline := time.Now().Add(20 * time.Second); ; {
		status, err := p.call("POST", "/api/v1/events/", `{"type":"a","data":{}}`, nil)
		if err != nil || status != http.StatusAccepted {
			break
		}
		if accepted++; time.Now().After(deadline) {
			require(t, "to be allowed to trace other processes")
		}
	}
	await(t, p.silent)
	if code := p.end(syscall.Signal(0)); code != 74 || !strings.Contains(p.stderr.String(), "stopping at once") {
		t.Errorf("exit code %d after %d more events:\n%s", code, accepted, p.stderr)
	}
	next := start(t, dir)
	if !strings.Contains(next.before, "was not closed by its last owner; it was checked and is sound") {
		t.Errorf("the next start says\n%s", next.before)
	}
	var list struct{ Data []struct{ ID string } }
	next.must(t, "GET", "/api/v1/events/?limit=200", "", &list)
	if len(list.Data) < min(20+accepted, 200) {
		t.Errorf("%d events of %d are there", len(list.Data), 20+accepted)
	}
}

// TestDiskFull fills the disk beneath a server at work.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", dir).CombinedOutput(); err != nil {
		require(t, fmt.Sprintf("root, and to be allowed to mount (%v: %s)", err, out))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	var mu sync.Mutex
	requests := map[string]int{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests[r.Header.Get("X-Service-Event-Id")+" "+r.Header.Get("X-Service-Attempt")]++
	}))
	defer receiver.Close()
	p := start(t, dir)
	var sub struct{ ID string }
	p.must(t, "POST", "/api/v1/webhooks/subscriptions/", `{"url":"`+receiver.URL+`","event_types":["a"]}`, &sub)
	var key struct{ Key string }
	p.must(t, "POST", "/api/v1/api-keys/", `{"name":"backend","scope":"events:write events:read"}`, &key)
	accepted := map[string]bool{}
	publish := func() (status int, header http.Header) {
		req, err := http.NewRequest("POST", p.url+"/api/v1/events/", strings.NewReader(`{"type":"a","data":{"text":"`+strings.Repeat("x", 4000)+`"}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "ApiKey "+key.Key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var event struct{ ID string }
		if err := json.NewDecoder(resp.Body).Decode(&event); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusAccepted {
			accepted[event.ID] = true
		}
		return resp.StatusCode, resp.Header
	}
	for range 20 {
		publish()
	}
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer ballast.Close()
	for err == nil {
		_, err = ballast.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}

	refused := 0
	for deadline := time.Now().Add(20 * time.Second); refused < 50; {
		switch status, header := publish(); {
		case status == http.StatusServiceUnavailable && header.Get("Retry-After") != "":
			refused++
		case status != http.StatusAccepted:
			t.Fatalf("status %d, %v", status, header)
		}
		if time.Now().After(deadline) {
			t.Fatal("the disk does not fill")
		}
	}
	if status, body := scrape(t, p.url+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, `"storage":{"ok":false,"problem":"the disk is full`) {
		t.Errorf("/readyz: status %d, %s", status, body)
	}
	if status, body := scrape(t, p.url+"/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: status %d, %s", status, body)
	}
	if _, body := scrape(t, p.url+"/metrics"); !strings.Contains(body, "\nkeyhook_degraded{reason=\"disk_full\"} 1\n") {
		t.Errorf("/metrics:\n%s", body)
	}
	p.must(t, "GET", "/api/v1/whoami/", "", nil)
	var verified struct{ Valid bool }
	p.must(t, "POST", "/api/v1/auth/verify/", `{"key":"`+key.Key+`"}`, &verified)
	if !verified.Valid {
		t.Error("the key does not hold while the disk is full")
	}
	p.must(t, "GET", "/api/v1/webhooks/subscriptions/"+sub.ID+"/deliveries/", "", nil)

	if err := os.Remove(ballast.Name()); err != nil {
		t.Fatal(err)
	}
	if err := ballast.Close(); err != nil {
		t.Fatal(err)
	}
	began, ready := time.Now(), 0
	for ; ready != http.StatusOK; <-time.After(10 * time.Millisecond) {
		if ready, _ = scrape(t, p.url+"/readyz"); time.Since(began) > 30*time.Second {
			t.Fatal("it does not heal within 30 s")
		}
	}
	t.Logf("%d accepted, %d refused, healed in %s", len(accepted), refused, time.Since(began))
	if status, _ := publish(); status != http.StatusAccepted {
		t.Errorf("healed, and the status is %d", status)
	}
	p.drained(t, sub.ID)
	recorded := p.attempts(t, sub.ID)
	mu.Lock()
	defer mu.Unlock()
	for id := range accepted {
		if requests[id+" 1"] == 0 {
			t.Errorf("%s was accepted and never arrived", id)
		}
	}
	for request := range requests {
		if recorded[request] != 1 {
			t.Errorf("attempt %s was on the wire and is on record %d times", request, recorded[request])
		}
	}
	if code := p.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestLookingOn asks a server at work how it is, from beside it: it goes on undisturbed, and its database is not opened.
func TestLookingOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p := startAt(t, address, dir)
	for _, name := range []string{"healthcheck", "doctor"} {
		t.Run(name, func(t *testing.T) {
			strace, err := exec.LookPath("strace")
			if err != nil {
				require(t, "strace")
			}
			cmd := keyhook(t, name, "--listen="+address)
			cmd.Dir = dir
			opened := filepath.Join(t.TempDir(), "opened")
			cmd.Args = append([]string{strace, "-f", "-qq", "-o", opened, "-e", "trace=open,openat,openat2,unlink,unlinkat,rename,renameat", cmd.Path}, cmd.Args[1:]...)
			cmd.Path = strace
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			} else if !strings.Contains(string(out), "ready") || name == "doctor" && !strings.Contains(string(out), fmt.Sprintf("process %d owns", p.cmd.Process.Pid)) {
				t.Errorf("it said:\n%s", out)
			}
			calls, err := os.ReadFile(opened)
			if err != nil || len(calls) == 0 {
				t.Fatalf("no calls, error %v", err)
			}
			for line := range strings.Lines(string(calls)) {
				if strings.Contains(line, `keyhook.db"`) || strings.Contains(line, `keyhook.db-`) || strings.Contains(line, "O_CREAT") || strings.Contains(line, "unlink(") {
					t.Errorf("it did %s", line)
				}
			}
		})
	}
	p.must(t, "POST", "/api/v1/events/", `{"type":"a","data":{}}`, nil)
	if code := p.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	gone := keyhook(t, "healthcheck", "--listen="+address)
	if out, err := gone.CombinedOutput(); gone.ProcessState.ExitCode() != 1 || strings.Count(string(out), "\n") != 1 {
		t.Errorf("of a server that has ended: %v\n%s", err, out)
	}
}

// require skips a test for want of something, or has it fail where all must be there.
func require(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
		t.Fatalf("this test needs %s", what)
	}
	t.Skipf("this test needs %s", what) // a failure under KEYHOOK_TEST_REQUIRE
}

func TestMetrics(t *testing.T) {
	t.Parallel()

	t.Run("count what the process does, and are shown to this machine", func(t *testing.T) {
		t.Parallel()
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/down" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		defer receiver.Close()
		dir := t.TempDir()
		p := start(t, dir)
		for _, path := range []string{"/up", "/down"} {
			p.must(t, "POST", "/api/v1/webhooks/subscriptions/", `{"url":"`+receiver.URL+path+`","event_types":["a"]}`, nil)
		}
		for range 6 {
			p.must(t, "POST", "/api/v1/events/", `{"type":"a","data":{}}`, nil)
		}
		for deadline := time.Now().Add(20 * time.Second); ; <-time.After(10 * time.Millisecond) {
			_, got := scrape(t, p.url+"/metrics")
			if strings.Contains(got, "\nkeyhook_delivery_attempts_total{outcome=\"succeeded\"} 6\n") &&
				strings.Contains(got, "\nkeyhook_subscription_transitions_total{status=\"failing\"} 1\n") {
				for _, want := range []string{
					"keyhook_events_published_total 6", `keyhook_deliveries_ended_total{state="delivered"} 6`,
					`keyhook_deliveries_pending{state="healthy"} 0`, `keyhook_deliveries_pending{state="failing"} 6`,
					`keyhook_lanes{state="failing"} 1`, `keyhook_delivery_attempt_failures_total{class="timeout"} 0`,
					`keyhook_http_requests_total{method="POST",route="/api/v1/events/",status="202"} 6`,
				} {
					if !strings.Contains(got, "\n"+want+"\n") {
						t.Errorf("no %s in\n%s", want, got)
					}
				}
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("after 20 s:\n%s", got)
			}
		}
	})

	t.Run("have a listener of their own where that is set, and are nowhere else then", func(t *testing.T) {
		t.Parallel()
		p := start(t, t.TempDir(), "KEYHOOK_METRICS_LISTEN=127.0.0.1:0")
		if status, got := scrape(t, "http://"+p.metrics+"/metrics"); status != 200 || !strings.Contains(got, "keyhook_build_info") {
			t.Errorf("status %d: %s", status, got)
		}
		for _, url := range []string{p.url + "/metrics", p.url + "/metrics/", "http://" + p.metrics + "/api/v1/whoami/"} {
			if status, _ := scrape(t, url); status != 404 {
				t.Errorf("%s: status %d", url, status)
			}
		}
		if status, err := p.call("GET", "/metrics", "", nil); err != nil || status != 404 {
			t.Errorf("as operator: status %d, error %v", status, err)
		}
		if code := p.end(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})

	t.Run("refuse a port in use before a file is touched", func(t *testing.T) {
		t.Parallel()
		p := start(t, t.TempDir())
		second := keyhook(t, "serve", "--listen=127.0.0.1:0", "--metrics.listen="+strings.TrimPrefix(p.url, "http://"))
		out, err := second.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "metrics.listen") || strings.Count(string(out), "\n") != 1 {
			t.Errorf("error %v, output %s", err, out)
		}
		if left, _ := filepath.Glob(filepath.Join(second.Dir, "*")); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
	})
}

// scrape gets a page of metrics without a credential.
func scrape(t *testing.T, url string) (status int, text string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// provider is a small identity provider on loopback with one key.
type provider struct {
	url string
	key ed25519.PrivateKey
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, p.url, p.url+"/jwks")
	case "/jwks":
		x := base64.RawURLEncoding.EncodeToString(p.key.Public().(ed25519.PublicKey))
		fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","use":"sig","alg":"EdDSA","x":%q}]}`, x)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// token signs one for a subject.
func (p *provider) token(audience, subject string, expires time.Duration) string {
	b64 := base64.RawURLEncoding.EncodeToString
	claims, _ := json.Marshal(map[string]any{"iss": p.url, "aud": audience, "sub": subject, "exp": time.Now().Add(expires).Unix()})
	input := b64([]byte(`{"alg":"EdDSA","kid":"1"}`)) + "." + b64(claims)
	return input + "." + b64(ed25519.Sign(p.key, []byte(input)))
}

// as asks who a bearer is.
func (p *process) as(t testing.TB, token string) (status int, code, user string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", p.url+"/api/v1/whoami/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body struct {
		Code string
		User struct{ Email string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body.Code, body.User.Email
}

func TestIdentityProvider(t *testing.T) {
	t.Parallel()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	idp := &provider{key: private}

	t.Run("lets its users in, as they are known here", func(t *testing.T) {
		server := httptest.NewUnstartedServer(idp)
		idp.url = "http://" + server.Listener.Addr().String()
		server.Start()
		defer server.Close()
		p := start(t, t.TempDir(), "KEYHOOK_OIDC_ISSUER="+idp.url, "KEYHOOK_OIDC_AUDIENCE=keyhook")
		var user, me struct {
			ID           string
			Organization struct{ ID string }
		}
		p.must(t, "POST", "/api/v1/users/", `{"email":"ada@example.com","external_id":"auth0|ada"}`, &user)
		p.must(t, "GET", "/api/v1/whoami/", "", &me)
		p.must(t, "PUT", "/api/v1/organizations/"+me.Organization.ID+"/members/"+user.ID+"/", `{"role":"owner"}`, nil)
		for _, tt := range []struct {
			token  string
			status int
			code   string
			user   string
		}{
			{idp.token("keyhook", "auth0|ada", time.Minute), 200, "", "ada@example.com"},
			{idp.token("another", "auth0|ada", time.Minute), 401, "wrong_audience", ""},
			{idp.token("keyhook", "auth0|bob", time.Minute), 401, "unknown_user", ""},
			{idp.token("keyhook", "auth0|ada", -2*time.Minute), 401, "token_expired", ""},
			{idp.token("keyhook", "auth0|ada", time.Minute) + "AAAA", 401, "invalid_key", ""},
		} {
			if status, code, user := p.as(t, tt.token); status != tt.status || code != tt.code || user != tt.user {
				t.Errorf("%d %s %s, want %+v", status, code, user, tt)
			}
		}
		server.Close()
		if status, code, _ := p.as(t, idp.token("keyhook", "auth0|ada", time.Minute)); status != 200 {
			t.Errorf("once it is down: %d %s", status, code)
		}
		if code := p.end(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("that is down at the start keeps nobody out but its own users", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		idp.url = "http://" + l.Addr().String()
		p := start(t, t.TempDir(), "KEYHOOK_OIDC_ISSUER="+idp.url, "KEYHOOK_OIDC_AUDIENCE=keyhook")
		if status, code, _ := p.as(t, idp.token("keyhook", "auth0|ada", time.Minute)); status != 503 || code != "issuer_unavailable" {
			t.Errorf("%d %s", status, code)
		}
		p.must(t, "GET", "/api/v1/whoami/", "", nil)
	})
}

func TestSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	ask := func(method, url, body string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := browser.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	p := start(t, dir)
	if status := ask("POST", p.url+"/api/v1/session/", `{"token":"`+operatorToken+`"}`); status != 201 {
		t.Fatalf("status %d", status)
	}
	p.end(syscall.SIGKILL)
	again := start(t, dir) // at another port, which cookies do not look at
	for _, step := range []struct {
		method string
		status int
	}{{"GET", 200}, {"DELETE", 204}, {"GET", 401}} {
		if status := ask(step.method, again.url+"/api/v1/session/", ""); status != step.status {
			t.Errorf("%s: status %d, want %d", step.method, status, step.status)
		}
	}
}

// TestScripts types what people type: whole processes, one server for many commands.
func TestScripts(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "server/cli/testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			bin := filepath.Join(env.WorkDir, ".bin")
			env.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			env.Setenv(asProgram, "1")
			return errors.Join(os.Mkdir(bin, 0o700), os.Symlink(self, filepath.Join(bin, "keyhook")))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "let": let, "ready": ready},
	})
}

// TestSocketOfAnother runs a command as another user: it must not get in, and say whose the socket is.
func TestSocketOfAnother(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
			t.Fatal("only root can be another user")
		}
		t.Skip("only root can be another user") // a failure under KEYHOOK_TEST_REQUIRE
	}
	dir := t.TempDir()
	for open := dir; open != os.TempDir() && open != "/"; open = filepath.Dir(open) {
		if err := os.Chmod(open, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	start(t, dir)
	cmd := keyhook(t, "keys", "list")
	program := filepath.Join(dir, "keyhook") // where the tests were built, another user may not look
	// A copy that this process wrote could not be run while a child of another test still holds it open.
	if out, err := exec.Command("install", "-m", "755", cmd.Path, program).CombinedOutput(); err != nil {
		t.Fatalf("copy the program: %v: %s", err, out)
	}
	const nobody = 65534
	cmd.Path, cmd.Dir = program, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	want := "keyhook: the socket " + filepath.Join(dir, "keyhook.db.sock") + " belongs to root; run this command as that user or as root, or name a server with --url and --token\n"
	if cmd.ProcessState.ExitCode() != 1 || string(out) != want {
		t.Errorf("error %v, output %q, want %q", err, out, want)
	}
}

// exits runs a command that must end with an exit code: exits CODE PROGRAM ARGUMENT…
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGUMENT…")
	}
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || strconv.Itoa(exit.ExitCode()) != args[0] {
		ts.Fatalf("error %v, want exit code %s", err, args[0])
	}
}

// let keeps the last output: let NAME
func let(ts *testscript.TestScript, neg bool, args []string) {
	value := strings.TrimSpace(ts.ReadFile("stdout"))
	if neg || len(args) != 1 || value == "" {
		ts.Fatalf("usage: let NAME, after a command with output")
	}
	ts.Setenv(args[0], value)
}

// ready waits until the log of a server says so, and sets URL: ready FILE
func ready(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ready FILE")
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		text, _ := os.ReadFile(ts.MkAbs(args[0])) // not there yet, maybe
		for line := range bytes.Lines(text) {
			var said struct{ Msg, URL string }
			if json.Unmarshal(line, &said) == nil && said.Msg == "ready" {
				ts.Setenv("URL", said.URL)
				return
			}
		}
	}
	ts.Fatalf("not ready after 20 s:\n%s", ts.ReadFile(args[0]))
}

func TestDemo(t *testing.T) {
	t.Parallel()
	out, err := keyhook(t, "demo").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "All of it was checked") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

func TestBench(t *testing.T) {
	t.Parallel()
	cmd := keyhook(t, "bench", "--events=200", "--fanout=3", "--body=300", "--connections=8", "--json")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("error %v, errors:\n%s", err, stderr.String())
	}
	var got struct {
		Events  int
		Backlog int
		Figures map[string]struct {
			Value *float64
			Unit  string
			Ratio *float64
		}
	}
	decoder := json.NewDecoder(&stdout)
	if err := decoder.Decode(&got); err != nil || decoder.More() || got.Events != 200 || got.Backlog != 500 {
		t.Fatalf("error %v, more %t, decoded %+v", err, decoder.More(), got)
	}
	// Processor times of so short a run may round to nothing, but not their sum.
	parts := []string{"cpu_per_event_server", "cpu_per_event_receiver", "cpu_per_event_publisher"}
	proc := append([]string{"memory_idle", "memory_saturated", "memory_peak", "cpu_per_event"}, parts...)
	compared := []string{"end_to_end", "end_to_end_normal", "end_to_end_wide", "fanout", "batch", "keys", "keys_logged", "keys_limited", "gate", "gate_logged", "healthy_beside_hanging_p99", "healthy_beside_backlog_p99"}
	figures := slices.Concat(proc, compared, []string{
		"raw", "publish", "end_to_end_publish", "saturated_p50", "saturated_p99", "wide_p50", "full_to_normal",
		"gentle_p50", "gentle_p99", "bare", "bare_empty", "healthy_alone_p99",
	})
	for _, name := range figures {
		f, found := got.Figures[name]
		switch {
		case !found:
			t.Errorf("no %s", name)
		case runtime.GOOS != "linux" && slices.Contains(proc, name):
			if f.Value != nil {
				t.Errorf("%s is %g where nobody can tell", name, *f.Value)
			}
		case f.Value == nil || *f.Value < 0 || *f.Value == 0 && !slices.Contains(parts, name):
			t.Errorf("%s is %+v", name, f)
		}
		if slices.Contains(compared, name) && (f.Ratio == nil || *f.Ratio <= 0) {
			t.Errorf("the ratio of %s is %v", name, f.Ratio)
		}
	}
	if len(got.Figures) != len(figures) {
		t.Errorf("%d figures where %d are expected", len(got.Figures), len(figures))
	}
	if lines := strings.Count(stderr.String(), "\n"); lines != 10 || strings.Contains(stderr.String(), "\r") {
		t.Errorf("the progress is not a line for each of 10 sections:\n%q", stderr.String())
	}
	directory, _ := strings.CutPrefix(cmd.Env[1], "TMPDIR=")
	if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
}

func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	cmd := keyhook(t, "bench", "--events=1000000")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() { // the first section has begun, so the children run
		t.Fatalf("no progress: %v", cmd.Wait())
	}
	if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Process.Signal(syscall.SIGTERM)); err != nil {
		t.Fatal(err)
	}
	var last string
	for lines.Scan() { // to the end of the pipe
		last = lines.Text()
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(last, "interrupted") {
		t.Errorf("error %v, last line %q", err, last)
	}
	directory, _ := strings.CutPrefix(cmd.Env[1], "TMPDIR=")
	if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
}

// TestKill kills the process again and again while events are published and delivered, and then compares what was
// accepted, what arrived, and what is on record.
func TestKill(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	arrived := map[string]bool{}  // event id
	requests := map[string]bool{} // event id and attempt number
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		id := r.Header.Get("X-Service-Event-Id")
		arrived[id] = true
		requests[id+" "+r.Header.Get("X-Service-Attempt")] = true
	}))
	defer receiver.Close()

	dir := t.TempDir()
	p := start(t, dir)
	var sub struct{ ID string }
	p.must(t, "POST", "/api/v1/webhooks/subscriptions/", `{"url":"`+receiver.URL+`","event_types":["a"]}`, &sub)
	accepted := map[string]bool{}
	for cycle := range cycles {
		ctx, cancel := context.WithCancel(t.Context())
		enough, wanted := make(chan struct{}), 20+rand.IntN(150)
		var publishers sync.WaitGroup
		for range 4 {
			publishers.Go(func() {
				for ctx.Err() == nil {
					var event struct{ ID string }
					status, err := p.call("POST", "/api/v1/events/", `{"type":"a","data":{"cycle":`+strconv.Itoa(cycle)+`}}`, &event)
					if err == nil && status == http.StatusAccepted {
						mu.Lock()
						accepted[event.ID] = true
						if wanted--; wanted == 0 {
							close(enough)
						}
						mu.Unlock()
					}
				}
			})
		}
		await(t, enough)
		p.end(syscall.SIGKILL)
		cancel()
		publishers.Wait()
		p = start(t, dir)
	}
	p.drained(t, sub.ID)
	recorded := p.attempts(t, sub.ID)
	mu.Lock()
	defer mu.Unlock()
	for id := range accepted {
		if !arrived[id] {
			t.Errorf("%s was accepted and never arrived", id)
		}
	}
	for request := range requests {
		if recorded[request] == 0 {
			t.Errorf("attempt %s was on the wire and is not on record", request)
		}
	}
	for attempt, n := range recorded {
		if n > 1 {
			t.Errorf("attempt %s is on record %d times", attempt, n)
		}
	}
	t.Logf("%d kills, %d events accepted, %d requests on the wire, %d attempts on record", cycles, len(accepted), len(requests), len(recorded))
}

// drained waits until nothing is pending for a subscription.
func (p *process) drained(t testing.TB, subscription string) {
	t.Helper()
	var state struct {
		Pending int64 `json:"pending_deliveries"`
	}
	for deadline := time.Now().Add(30 * time.Second); ; <-time.After(10 * time.Millisecond) {
		p.must(t, "GET", "/api/v1/webhooks/subscriptions/"+subscription+"/", "", &state)
		if state.Pending == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d deliveries are still pending", state.Pending)
		}
	}
}

// cycles is how often a test kills what it tests, and rekeys how often TestRekey does. The race detector slows all of it
// down tenfold, and looks at what runs beside each other rather than at the moments that a kill may hit.
var cycles, rekeys = 5, 20

func init() {
	build, _ := debug.ReadBuildInfo()
	if slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		cycles, rekeys = 2, 3
	}
}

// attempts reads the whole log of a subscription and counts each attempt by event id and number.
func (p *process) attempts(t *testing.T, subscription string) map[string]int {
	t.Helper()
	recorded := map[string]int{}
	for cursor := ""; ; {
		var page struct {
			Data []struct {
				EventID string `json:"event_id"`
				Number  int    `json:"attempt_number"`
			}
			NextCursor *string `json:"next_cursor"`
		}
		p.must(t, "GET", "/api/v1/webhooks/subscriptions/"+subscription+"/deliveries/?limit=200"+cursor, "", &page)
		for _, a := range page.Data {
			recorded[fmt.Sprintf("%s %d", a.EventID, a.Number)]++
		}
		if page.NextCursor == nil {
			return recorded
		}
		cursor = "&cursor=" + *page.NextCursor
	}
}

// TestRekey kills the change of the encryption key again and again, and looks each time whether every secret is there.
func TestRekey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := storagetest.Options(t, filepath.Join(dir, "keyhook.db"))
	store, stop := storagetest.OpenWith(t, o)
	operator := storagetest.Operator(t, store)
	var mu sync.Mutex
	secrets := map[int64]string{}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 100 {
				sub, secret := storagetest.Subscription(t, store, operator, "https://example.com/", "order.*")
				mu.Lock()
				secrets[sub.RowID] = secret.Reveal()
				mu.Unlock()
			}
		})
	}
	all.Wait()
	stop()
	rekey := func() *exec.Cmd {
		cmd := keyhook(t, "rekey")
		cmd.Dir = dir
		return cmd
	}
	began := time.Now()
	if out, err := rekey().CombinedOutput(); err != nil || !strings.Contains(string(out), "Sealed 1600 signing secrets") {
		t.Fatalf("error %v, output %s", err, out)
	}
	whole := time.Since(began)
	midway := 0
	for range rekeys {
		cmd := rekey()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(whole/4 + rand.N(whole))
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()         // which the key file tells as well
		keys, err := os.ReadFile(o.Path + ".key")
		if err != nil {
			t.Fatal(err)
		}
		if len(strings.Fields(string(keys))) > 1 {
			midway++
		}
		store, stop := storagetest.OpenWith(t, o)
		for row, secret := range secrets {
			if at, err := store.Target(t.Context(), row); err != nil || at.Secret.Reveal() != secret {
				t.Fatalf("subscription %d: %q, error %v", row, at.Unusable, err)
			}
		}
		stop()
	}
	t.Logf("of %d changes, %d were killed midway", rekeys, midway)
	p := start(t, dir) // with whatever the last one left
	out, err := rekey().CombinedOutput()
	if err == nil || !strings.Contains(string(out), strconv.Itoa(p.cmd.Process.Pid)) || strings.Count(string(out), "\n") != 1 {
		t.Errorf("beside a server: error %v, output %s", err, out)
	}
	p.end(syscall.SIGTERM)
	if out, err := rekey().CombinedOutput(); err != nil {
		t.Errorf("error %v, output %s", err, out)
	}
	if left, _ := filepath.Glob(o.Path + ".key*.part"); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

// TestPrefixes changes keys.prefix and webhooks.header_prefix while a key is in use and a delivery waits for its retry.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	arrived := make(chan http.Header, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		arrived <- r.Header
	}))
	defer receiver.Close()
	dir := t.TempDir()
	p := start(t, dir, "KEYHOOK_WEBHOOKS_RETRY_BASE=2s")
	const path = "/api/v1/api-keys/"
	var older, newer struct {
		Key       string
		ID        string
		KeyPrefix string `json:"key_prefix"`
	}
	p.must(t, "POST", path, `{"name":"older","scope":"events:write api_keys:write"}`, &older)
	p.must(t, "POST", "/api/v1/webhooks/subscriptions/", `{"url":"`+receiver.URL+`","event_types":["a"]}`, nil)
	p.must(t, "POST", "/api/v1/events/", `{"type":"a","data":{}}`, nil)
	first := <-arrived
	p.end(syscall.SIGTERM)
	p = start(t, dir, "KEYHOOK_KEYS_PREFIX=acme", "KEYHOOK_WEBHOOKS_HEADER_PREFIX=X-Acme")
	whoami := func(key string) int {
		t.Helper()
		req, _ := http.NewRequest("GET", p.url+"/api/v1/whoami", nil)
		req.Header.Set("Authorization", "ApiKey "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if status := whoami(older.Key); status != 200 || !strings.HasPrefix(older.Key, "svc_") {
		t.Errorf("the older key gets %d", status)
	}
	p.must(t, "POST", path+older.ID+"/rotate/", `{"grace_seconds":60}`, &newer)
	if !strings.HasPrefix(newer.Key, "acme_") || !strings.HasPrefix(newer.KeyPrefix, "acme_") || whoami(newer.Key) != 200 || whoami(older.Key) != 200 {
		t.Errorf("the newer key is %s", newer.KeyPrefix)
	}
	second := <-arrived
	for _, name := range []string{"Signature", "Timestamp", "Event-Id", "Event-Type", "Attempt"} {
		if first.Get("X-Service-"+name) == "" || first.Get("X-Acme-"+name) != "" {
			t.Errorf("%s before the change: %v", name, first)
		}
		if second.Get("X-Acme-"+name) == "" || second.Get("X-Service-"+name) != "" {
			t.Errorf("%s after the change: %v", name, second)
		}
	}
	if second.Get("X-Acme-Attempt") != "2" || second.Get("Webhook-Signature") == "" {
		t.Errorf("the second attempt: %v", second)
	}
}

// await waits for what must happen soon.
func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("it did not happen within 20 s")
	}
}

// counted is a receiver that can be down, and counts the requests that it gets.
type counted struct {
	*httptest.Server
	down atomic.Bool
	got  atomic.Int64
}

func newCounted(t *testing.T) *counted {
	c := &counted{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c.got.Add(1)
		if c.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// run runs a command in dir, and fails the test unless it succeeds and its output holds the texts.
func run(t *testing.T, dir string, args []string, texts ...string) {
	t.Helper()
	cmd := keyhook(t, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	for _, text := range texts {
		if !strings.Contains(string(out), text) {
			t.Errorf("%v: no %q in\n%s", args, text, out)
		}
	}
}

// queue returns the arguments of a queue command for this server.
func (p *process) queue(args ...string) []string {
	return append([]string{"queue", "--url=" + p.url, "--token=" + operatorToken}, args...)
}

// TestRestore takes a backup while a receiver is down, has everything delivered, and goes back: what the backup takes for
// pending is not sent again before an operator says so, or not at all.
func TestRestore(t *testing.T) {
	t.Parallel()
	receiver, dir := newCounted(t), t.TempDir()
	receiver.down.Store(true)
	settings := []string{"KEYHOOK_WEBHOOKS_RETRY_BASE=300ms", "KEYHOOK_WEBHOOKS_RETRY_FACTOR=1", "KEYHOOK_WEBHOOKS_RETRY_MAX=300ms", "KEYHOOK_WEBHOOKS_MAX_ATTEMPTS=100", "KEYHOOK_WEBHOOKS_DISABLED_AFTER=1000"}
	p := start(t, dir, settings...)
	var sub struct{ ID string }
	p.must(t, "POST", "/api/v1/webhooks/subscriptions/", `{"url":"`+receiver.URL+`","event_types":["a"]}`, &sub)
	publish := func() (id string) {
		var event struct{ ID string }
		p.must(t, "POST", "/api/v1/events/", `{"type":"a","data":{}}`, &event)
		return event.ID
	}
	const before = 10
	var events []string
	for range before {
		events = append(events, publish())
	}
	run(t, dir, []string{"backup", "before.db"}, "10 deliveries, 10 of them pending", "keyhook.db.key apart from it")
	refused := keyhook(t, "restore", "before.db")
	refused.Dir = dir
	if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), strconv.Itoa(p.cmd.Process.Pid)) {
		t.Errorf("beside the server: error %v, output %s", err, out)
	}
	receiver.down.Store(false)
	p.drained(t, sub.ID)
	states := func() map[string]int {
		of := map[string]int{}
		for _, id := range events {
			var event struct{ Deliveries []struct{ State string } }
			p.must(t, "GET", "/api/v1/events/"+id+"/", "", &event)
			of[event.Deliveries[0].State]++
		}
		return of
	}
	for _, again := range []struct {
		args  []string
		says  string
		sent  int64 // of what is pending in the backup
		state string
	}{
		{[]string{"release"}, "released               11\n", before, "delivered"},
		{[]string{"discard", "--yes"}, "dropped                10\n", 0, "dropped"},
	} {
		p.end(syscall.SIGTERM)
		run(t, dir, []string{"restore", "before.db"}, "held", "10 deliveries for "+sub.ID, "set aside as keyhook.db.replaced-")
		receiver.got.Store(0)
		p = start(t, dir, settings...)
		publish()
		run(t, dir, p.queue("show"), "held                   true\n", "restored from before.db", "pending_deliveries     11\n", strings.TrimPrefix(receiver.URL, "http://"))
		p.end(syscall.SIGKILL)
		p = start(t, dir, settings...)
		<-time.After(time.Second) // several times as long as any of them has to wait
		if n := receiver.got.Load(); n != 0 {
			t.Errorf("%d requests while the queue was held", n)
		}
		run(t, dir, p.queue(again.args...), again.says)
		p.drained(t, sub.ID)
		if n := receiver.got.Load(); n != again.sent+1 {
			t.Errorf("%d requests after %v", n, again.args)
		}
		if got := states(); got[again.state] != before {
			t.Errorf("after %v: %v", again.args, got)
		}
	}
}

// examine opens a database that nobody writes to, and returns what is wrong with it and how many events it holds.
func examine(t *testing.T, path string) (found string, events int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := errors.Join(db.QueryRow("PRAGMA quick_check").Scan(&found), db.QueryRow("SELECT count(*) FROM events").Scan(&events)); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return found, events
}

// TestKilledCopy kills backups beside a server that writes, and then restores, at any moment: what has the name of a copy is
// whole, and there is a whole database at every moment.
func TestKilledCopy(t *testing.T) {
	t.Parallel()
	dir, copies := t.TempDir(), t.TempDir()
	p := start(t, dir)
	for range 30 {
		p.must(t, "POST", "/api/v1/webhooks/subscriptions/", `{"url":"http://127.0.0.1:9/","event_types":["n"]}`, nil)
	}
	p.end(syscall.SIGTERM)
	storagetest.Grow(t, filepath.Join(dir, "keyhook.db"), storagetest.Size{History: 40_000})
	p = start(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var publisher sync.WaitGroup
	publisher.Go(func() {
		for ctx.Err() == nil {
			_, _ = p.call("POST", "/api/v1/events/", `{"type":"a","data":{}}`, nil)
		}
	})
	to := filepath.Join(copies, "copy.db")
	killed := 0
	kill := func(within int, args ...string) {
		cmd := keyhook(t, args...)
		cmd.Dir = dir
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-time.After(time.Duration(20+rand.IntN(within)) * time.Millisecond):
		case <-t.Context().Done():
		}
		_ = cmd.Process.Kill() // it may have ended
		if _ = cmd.Wait(); !cmd.ProcessState.Exited() {
			killed++
		}
	}
	for range cycles {
		kill(200, "backup", "--force", to) // most of which it writes
		if _, err := os.Stat(to); err == nil {
			if found, events := examine(t, to); found != "ok" || events < 4000 {
				t.Errorf("a copy has its name and is not whole: %s, %d events", found, events)
			}
		}
	}
	cancel()
	publisher.Wait()
	run(t, dir, []string{"backup", "--force", to})
	if left, err := os.ReadDir(copies); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
	_, old := examine(t, to)
	p.must(t, "POST", "/api/v1/events/", `{"type":"a","data":{}}`, nil)
	p.end(syscall.SIGKILL)
	backups := killed
	for range cycles {
		kill(400, "restore", to)
		if found, events := examine(t, filepath.Join(dir, "keyhook.db")); found != "ok" || events != old && events != old+1 {
			t.Errorf("the database is not whole: %s, %d events", found, events)
		}
	}
	run(t, dir, []string{"restore", to}, "held")
	if left, _ := filepath.Glob(filepath.Join(dir, "*.restoring*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	t.Logf("of %d each, %d backups and %d restores were killed", cycles, backups, killed-backups)
}

// litestream returns the path of the program, as KEYHOOK_LITESTREAM names it or as PATH has it.
func litestream(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("KEYHOOK_LITESTREAM"), "litestream"))
	if err != nil {
		const reason = "there is no litestream: go install github.com/benbjohnson/litestream/cmd/litestream@v0.5.18, or name it in KEYHOOK_LITESTREAM (%v)"
		if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
			t.Fatalf(reason, err)
		}
		t.Skipf(reason, err)
	}
	return path
}

// TestLitestream replicates a server that is published to, kills both, and restores the replica elsewhere.
func TestLitestream(t *testing.T) {
	t.Parallel()
	program := litestream(t)
	dir, elsewhere := t.TempDir(), t.TempDir()
	p := start(t, dir)
	replica := "file://" + filepath.Join(t.TempDir(), "replica")
	var log bytes.Buffer
	replicate := func() *exec.Cmd {
		cmd := exec.Command(program, "replicate", filepath.Join(dir, "keyhook.db"), replica)
		cmd.Stdout, cmd.Stderr = &log, &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return cmd
	}
	end := func(cmd *exec.Cmd) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	restored := func(to string) (events int) {
		_ = os.Remove(to)
		if out, err := exec.Command(program, "restore", "-o", to, replica).CombinedOutput(); err != nil {
			return -1 // nothing is replicated yet, or the last piece is being written
		} else if found, n := examine(t, to); found != "ok" {
			t.Errorf("the replica: %s\n%s", found, out)
		} else {
			events = n
		}
		return events
	}
	replication := replicate()
	var ids []string
	publish := func(n int) {
		for range n {
			var event struct{ ID string }
			p.must(t, "POST", "/api/v1/events/", `{"type":"a","data":{}}`, &event)
			ids = append(ids, event.ID)
		}
	}
	publish(300)
	copied := filepath.Join(elsewhere, "replica.db")
	for deadline := time.Now().Add(30 * time.Second); restored(copied) < 300; <-time.After(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("300 events were published and the replica has %d:\n%s", restored(copied), &log)
		}
	}
	publish(50) // of which the replica may have some
	p.end(syscall.SIGKILL)
	end(replication)
	if n := restored(copied); n < 300 || n > 350 {
		t.Errorf("the replica has %d events", n)
	}

	key, err := os.ReadFile(filepath.Join(dir, "keyhook.db.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(elsewhere, "keyhook.db.key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, elsewhere, []string{"restore", copied}, "held")
	p = start(t, elsewhere)
	for _, id := range ids[:300] {
		p.must(t, "GET", "/api/v1/events/"+id+"/", "", nil)
	}
	p.end(syscall.SIGTERM)

	// The first machine goes on with the file that Litestream has left its tables in, and refuses to be restored meanwhile.
	p = start(t, dir)
	replication = replicate()
	publish(1)
	for deadline := time.Now().Add(30 * time.Second); restored(copied) < len(ids); <-time.After(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the replica does not go on:\n%s", &log)
		}
	}
	p.end(syscall.SIGTERM)
	refused := keyhook(t, "restore", copied)
	refused.Dir = dir
	if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), "Litestream") {
		t.Errorf("beside Litestream: error %v, output %s", err, out)
	}
	end(replication)
}

// BenchmarkDelivery publishes b.N events over HTTP from 64 connections to a server with synchronous=full, whose one
// subscription leads back to this process, and ends when each delivery is recorded.
func BenchmarkDelivery(b *testing.B) {
	receiver := silentReceiver(b)
	p := start(b, b.TempDir())
	p.subscribe(b, receiver, "a")
	p.deliver(b, "a")
}

// BenchmarkScale is BenchmarkDelivery with 1001 subscriptions, each event for one of them in turn, on files that have been
// filled beforehand: with millions of deliveries behind them, and with a million that wait. Compare the rates with those of the empty file, within one run; run it with -benchtime=20000x
// or the like, because each round fills its file again. Making the files takes a minute or two.
func BenchmarkScale(b *testing.B) {
	for _, file := range []struct {
		name string
		size storagetest.Size
	}{
		{"empty", storagetest.Size{}},
		{"pending=1M", storagetest.Size{Closed: 400_000, Failing: 300_000, Later: 300_000}},
		{"history=5M", storagetest.Size{History: 5_000_000}},
		{"empty-again", storagetest.Size{}},
	} {
		b.Run(file.name, func(b *testing.B) {
			receiver, dir := silentReceiver(b), b.TempDir()
			p := start(b, dir)
			var types []string
			for row := 1; row <= 1001; row++ {
				eventType := fmt.Sprintf("n%d", row)
				p.subscribe(b, receiver, eventType)
				if storagetest.StaysHealthy(row) {
					types = append(types, eventType)
				}
			}
			p.end(syscall.SIGTERM)
			storagetest.Grow(b, filepath.Join(dir, "keyhook.db"), file.size)
			began := time.Now()
			p = start(b, dir)
			ready := time.Since(began)
			p.deliver(b, types...)
			b.ReportMetric(ready.Seconds(), "start-s")
		})
	}
}

// BenchmarkBackup publishes 250 events a second to a server with a file of some 150 MB, for ten seconds without a backup and
// ten seconds with one after the other, and reports what publishers waited: half of them, 99 of 100, and the slowest.
func BenchmarkBackup(b *testing.B) {
	dir := b.TempDir()
	p := start(b, dir)
	for row := range 40 {
		p.subscribe(b, "http://127.0.0.1:9/", fmt.Sprintf("n%d", row))
	}
	p.end(syscall.SIGTERM)
	storagetest.Grow(b, filepath.Join(dir, "keyhook.db"), storagetest.Size{History: 500_000})
	p = start(b, dir)
	for _, kind := range []string{"none", "by-command", "by-request", "none-again"} {
		b.Run(kind, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			var running sync.WaitGroup
			var copies, largest int64
			running.Go(func() {
				for ctx.Err() == nil {
					switch kind {
					case "by-command":
						cmd := keyhook(b, "backup", "--keep=1")
						cmd.Dir = dir
						if out, err := cmd.CombinedOutput(); err != nil {
							b.Errorf("%v: %s", err, out)
						}
					case "by-request":
						p.must(b, "POST", "/api/v1/backups/", `{"keep":1}`, nil)
					default:
						return
					}
					copies++
				}
			})
			running.Go(func() {
				for ctx.Err() == nil {
					if info, err := os.Stat(filepath.Join(dir, "keyhook.db-wal")); err == nil {
						largest = max(largest, info.Size())
					}
					<-time.After(10 * time.Millisecond)
				}
			})
			begin := time.Now()
			waits := p.paced(b, 250, 10*time.Second)
			cancel()
			running.Wait()
			at := func(part float64) float64 {
				return float64(waits[int(part*float64(len(waits)-1))].Microseconds()) / 1000
			}
			b.ReportMetric(at(0.5), "ms-p50")
			b.ReportMetric(at(0.99), "ms-p99")
			b.ReportMetric(at(1), "ms-max")
			b.ReportMetric(float64(largest)/1e6, "MB-wal")
			b.ReportMetric(0, "ns/op")
			if copies > 0 {
				b.ReportMetric(time.Since(begin).Seconds()/float64(copies), "s-backup")
			}
		})
	}
	if info, err := os.Stat(filepath.Join(dir, "keyhook.db")); err == nil {
		b.Logf("a file of %d MB", info.Size()>>20)
	}
}

// paced publishes so many events a second, whether those before have been answered or not, and returns how long each
// answer took from when it should have been asked for, in order.
func (p *process) paced(b *testing.B, rate int, during time.Duration) []time.Duration {
	b.Helper()
	var mu sync.Mutex
	var waits []time.Duration
	var all sync.WaitGroup
	begin := time.Now()
	for i := range rate * int(during.Seconds()) {
		due := begin.Add(time.Duration(i) * time.Second / time.Duration(rate))
		<-time.After(time.Until(due))
		all.Go(func() {
			status, err := p.call("POST", "/api/v1/events/", `{"type":"nobody","data":{"text":"`+strings.Repeat("x", 900)+`"}}`, nil)
			if err != nil || status != http.StatusAccepted {
				b.Errorf("status %d, error %v", status, err)
			}
			mu.Lock()
			waits = append(waits, time.Since(due))
			mu.Unlock()
		})
	}
	all.Wait()
	slices.Sort(waits)
	return waits
}

// silentReceiver answers 200 to everything and returns its URL.
func silentReceiver(b *testing.B) string {
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	b.Cleanup(receiver.Close)
	return receiver.URL
}

// subscribe makes a subscription to one type of event.
func (p *process) subscribe(b *testing.B, url, eventType string) {
	b.Helper()
	p.must(b, "POST", "/api/v1/webhooks/subscriptions/", `{"url":"`+url+`","event_types":["`+eventType+`"]}`, nil)
}

// deliver publishes b.N events, of the types in turn, and waits until each is delivered and recorded.
func (p *process) deliver(b *testing.B, types ...string) {
	body := `{"data":{"text":"` + strings.Repeat("x", 900) + `"},"type":"`
	const publishers = 64
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: publishers}}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var all sync.WaitGroup
	for range publishers {
		all.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				req, err := http.NewRequest("POST", p.url+"/api/v1/events/", strings.NewReader(body+types[n%int64(len(types))]+`"}`))
				if err != nil {
					b.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+operatorToken)
				req.Header.Set("Content-Type", "application/json")
				resp, err := client.Do(req)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusAccepted {
					b.Errorf("status %d", resp.StatusCode)
					return
				}
			}
		})
	}
	all.Wait()
	published := b.Elapsed()
	var stats struct{ Totals struct{ Succeeded int } }
	for stats.Totals.Succeeded < b.N {
		<-time.After(10 * time.Millisecond)
		p.must(b, "GET", "/api/v1/webhooks/stats/?step=86400", "", &stats)
	}
	b.ReportMetric(float64(b.N)/published.Seconds(), "published/s")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "recorded/s")
	b.ReportMetric(float64(p.resident(b))/1e6, "MB-resident")
}

// BenchmarkStart measures from exec to ready, on no file, and what an idle server holds resident.
func BenchmarkStart(b *testing.B) {
	var resident int64
	for b.Loop() {
		p := start(b, b.TempDir())
		resident = p.resident(b)
		p.end(syscall.SIGTERM)
	}
	b.ReportMetric(float64(resident)/1e6, "MB-resident")
}

// resident returns the resident memory of the process in bytes.
func (p *process) resident(b *testing.B) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// mayImport is which of our packages each of them may import: imports go down. A package that is not named may import
// none of ours.
var mayImport = map[string][]string{
	"": {
		"server", "server/cli", "server/config", "server/metrics", "server/oidc", "server/socket", "limiter", "dispatch", "dispatch/egress",
		"storage", "storage/access", "storage/webhook", "storage/fault",
	},
	"server":              {"server/docs", "limiter", "dispatch/egress", "storage/access", "storage/backup", "storage/clock", "storage/webhook", "storage/fault"},
	"server/oidc":         {"storage/access", "storage/fault"},  // whom a token is about, and what its holder may know of a refusal
	"server/metrics":      {"storage/clock", "storage/webhook"}, // the vocabulary of what it counts; whoever counts reaches it through a hook
	"dispatch":            {"dispatch/egress", "dispatch/signature", "storage/webhook"},
	"storage":             {"storage/access", "storage/backup", "storage/clock", "storage/webhook", "storage/fault", "storage/seal", "storage/disk"},
	"storage/access":      {"storage/fault"},
	"storage/webhook":     {"storage/fault"},
	"storage/storagetest": {"storage", "storage/access", "storage/webhook"},

	"server/cli/client":            {"server/cli/output", "server/config", "server/socket"},
	"server/cli":                   {"server/cli/bench", "server/cli/child", "server/cli/flag", "server/cli/client", "server/cli/output", "server/config", "server/socket", "storage", "storage/backup", "storage/disk", "storage/fault", "dispatch/signature", "server/cli/receive/diagnosis", "dispatch/egress"},
	"server/cli/bench":             {"server/cli/child", "server/cli/client", "server/cli/flag", "server/cli/output"},
	"server/cli/receive/diagnosis": {"dispatch/signature"},
}

// fences is where a module may be imported.
var fences = map[string][]string{
	"modernc.org/sqlite":                  {"storage", "storage/faultdisk"}, // the latter is for tests, and nobody may import it
	"modernc.org/libc":                    {"storage/faultdisk"},
	"github.com/jmoiron/sqlx":             {"storage"},
	"github.com/coreos/go-oidc":           {"server/oidc"},
	"github.com/go-jose/go-jose":          {"server/oidc"},
	"github.com/julienschmidt/httprouter": {"server"},
	"github.com/prometheus":               {"server/metrics"},
	"github.com/spf13/viper":              {"server/config"},
	"github.com/yuin/goldmark":            {"server/docs"},
	"github.com/spf13/cobra":              {"", "server/cli", "server/cli/bench", "server/cli/client", "server/cli/output"},
	"go.yaml.in/yaml":                     {"server/config", "server"}, // server makes JSON of openapi.yaml
	"golang.org/x/time/rate":              {"dispatch", "server"},
}

func TestImportsGoDown(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	const module = "github.com/keyhook/keyhook"
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		pkg := strings.TrimPrefix(strings.TrimPrefix(words[0], module), "/")
		seen[pkg] = true
		for _, path := range words[1:] {
			if ours, isOurs := strings.CutPrefix(path, module+"/"); isOurs && !slices.Contains(mayImport[pkg], ours) {
				t.Errorf("%s must not import %s", words[0], ours)
			}
			for fenced, allowed := range fences {
				if (path == fenced || strings.HasPrefix(path, fenced+"/")) && !slices.Contains(allowed, pkg) {
					t.Errorf("%s must not import %s", words[0], path)
				}
			}
		}
	}
	for pkg := range mayImport {
		if !seen[pkg] {
			t.Errorf("the table names %q, which does not exist", pkg)
		}
	}
}
