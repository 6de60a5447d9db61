package cli_test

import (
	"bufio"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
)

// nobody is the user of the image.
const nobody = 65532

// inside is a shell script that acts like a container runtime: it makes the tree read-only except /data and /tmp, and runs the
// program as the unprivileged user and as process 1.
const inside = `set -e
mount --bind "$ROOT" "$ROOT"
mount --bind "$ROOT/data" "$ROOT/data"
mount -t tmpfs -o size=16m,mode=1777 tmpfs "$ROOT/tmp"
mount -t proc proc "$ROOT/proc"
mount -o remount,bind,ro "$ROOT"
exec chroot --userspec=65532:65532 "$ROOT" /keyhook "$@"`

// image is the file tree of the container image. The test makes it, because a machine may have no daemon to build images.
type image struct {
	root     string
	isolated bool // by namespaces and a read-only mount; false means by the modes of its directories
}

// newImage makes the tree: the binary and the files of the base image.
func newImage(t *testing.T, authority []byte) *image {
	t.Helper()
	if os.Getuid() != 0 {
		require(t, "this needs root, for chroot and another user")
	}
	i := &image{root: t.TempDir()}
	// Other users cannot enter the temporary directory of the test.
	for dir := i.root; dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"etc/ssl/certs", "tmp", "data", "proc"} {
		if err := os.MkdirAll(filepath.Join(i.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", filepath.Join(i.root, "keyhook"), ".")
	build.Dir = top
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(i.root, "etc/passwd"), []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"), 0o644),
		os.WriteFile(filepath.Join(i.root, "etc/ssl/certs/ca-certificates.crt"), authority, 0o644),
		os.Chown(filepath.Join(i.root, "data"), nobody, nobody),
		os.Chmod(filepath.Join(i.root, "keyhook"), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	i.isolated = exec.Command("unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", filepath.Join(i.root, "tmp")).Run() == nil
	return i
}

// command runs the program in the tree, with only the environment of the image.
func (i *image) command(args, environment []string) *exec.Cmd {
	cmd := exec.Command("/keyhook", args...)
	if i.isolated {
		cmd = exec.Command("unshare", append([]string{"--mount", "--pid", "--fork", "--kill-child", "sh", "-c", inside, "sh"}, args...)...)
		environment = append(environment, "ROOT="+i.root, "PATH="+os.Getenv("PATH"))
	} else {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Dir = "/"
	}
	cmd.Env = environment
	return cmd
}

// container is the program running in the tree.
type container struct {
	image   *image
	cmd     *exec.Cmd
	url     string
	environ []string
}

const containerToken = "the-token-of-the-container"

// run starts `serve` and waits until it is ready.
func (i *image) run(t *testing.T) *container {
	t.Helper()
	c := &container{image: i, environ: []string{"KEYHOOK_STORAGE_PATH=/data/keyhook.db", "KEYHOOK_BOOTSTRAP_TOKEN=" + containerToken}}
	c.cmd = i.command([]string{"serve", "--dev", "--listen=127.0.0.1:0", "--log.format=json"}, c.environ)
	logged, err := c.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}
	})
	var seen strings.Builder
	for lines := bufio.NewScanner(logged); lines.Scan(); {
		seen.WriteString(lines.Text() + "\n")
		var line struct{ Msg, URL string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" {
			c.url = line.URL
			c.environ = append(c.environ, "KEYHOOK_SERVER_LISTEN="+strings.TrimPrefix(line.URL, "http://")) // for the health check
			go io.Copy(io.Discard, logged)                                                                  // ends with the process
			return c
		}
	}
	t.Fatalf("serve ended before it was ready: %v\n%s", c.cmd.Wait(), seen.String())
	return nil
}

// process returns the process id of the program, as this test sees it.
func (c *container) process(t *testing.T) int {
	t.Helper()
	if !c.image.isolated {
		return c.cmd.Process.Pid
	}
	pid := c.cmd.Process.Pid
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatalf("children of unshare: %q", text)
	}
	return child
}

// stop acts like `docker stop`: it sends SIGTERM to process 1 and returns the exit code.
func (c *container) stop(t *testing.T) int {
	t.Helper()
	if err := syscall.Kill(c.process(t), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.cmd.Wait() }()
	select {
	case <-ended:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(45 * time.Second):
		t.Fatal("it has not stopped within the grace of 45 s")
		return -1
	}
}

// call makes a request as the operator, which must succeed.
func (c *container) call(t *testing.T, method, path, body string, result any) {
	t.Helper()
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+containerToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: status %d, error %v: %s", method, path, resp.StatusCode, err, text)
	}
	if result != nil {
		if err := json.Unmarshal(text, result); err != nil {
			t.Fatal(err)
		}
	}
}

// TestImage runs the program like a container: only the static binary in a tree that is read-only except /data and /tmp, as an
// unprivileged user, as process 1.
func TestImage(t *testing.T) {
	t.Parallel()
	type taken struct {
		header http.Header
		body   []byte
	}
	got := make(chan taken, 2000)
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // an incomplete body does not verify
		got <- taken{r.Header.Clone(), body}
	}))
	defer receiver.Close()
	// The receiver's certificate is its own authority. It is valid only if the program reads the authorities of the base image.
	i := newImage(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw}))
	i.describe(t)

	c := i.run(t)
	c.call(t, "GET", "/healthz", "", nil)
	var sub struct{ ID, Secret string }
	c.call(t, "POST", "/api/v1/webhooks/subscriptions/", `{"url":"`+receiver.URL+`/hook","event_types":["a"]}`, &sub)
	c.call(t, "POST", "/api/v1/events/", `{"type":"a","data":{"n":1}}`, nil)
	select {
	case d := <-got:
		if err := signature.Verify(sub.Secret, d.header, d.body, time.Now(), 0); err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was delivered within 20 s")
	}
	c.call(t, "GET", "/readyz", "", nil) // the scheduler has begun by now

	// Large sorts and batches would need a file if SQLite did not keep them in memory.
	event := `{"type":"b","data":{"text":"` + strings.Repeat("x", 4000) + `"}},`
	for range 4 {
		c.call(t, "POST", "/api/v1/events/batch/", `{"events":[`+strings.TrimSuffix(strings.Repeat(event, 500), ",")+`]}`, nil)
	}
	for _, path := range []string{"/api/v1/events/?limit=200", "/api/v1/audit-events/?limit=200", "/api/v1/webhooks/stats/", "/api/v1/organizations/"} {
		c.call(t, "GET", path, "", nil)
	}
	t.Run("only /data can be written to", func(t *testing.T) { c.tryToWrite(t) })
	t.Run("the health check of the binary succeeds", func(t *testing.T) { c.checkHealth(t) })

	if code := c.stop(t); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	again := i.run(t)
	var log struct{ Data []struct{ Outcome string } }
	again.call(t, "GET", "/api/v1/webhooks/subscriptions/"+sub.ID+"/deliveries/", "", &log)
	if len(log.Data) != 1 || log.Data[0].Outcome != "succeeded" {
		t.Errorf("after a restart the log holds %+v", log.Data)
	}
	if code := again.stop(t); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	i.checkFiles(t)
}
