package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// reader is a person who pastes the commands of documents into one shell, in the directory of a running server. Commands that
// run until Ctrl-C get a terminal of their own.
type reader struct {
	server  *process
	flags   []string          // of the server
	dir     string            // where the commands run
	scratch string            // the scripts and their output
	ports   *strings.Replacer // from the addresses of the documents to free ones

	shell    io.Writer
	done     chan struct{} // one value for each script that has succeeded; closed at the end of the shell
	terminal *exec.Cmd     // a running `keyhook listen`; nil if there is none
	heard    string        // the file with the output of the last `keyhook listen`
	scripts  int
}

// newReader starts a server with some flags, and a shell, in an empty directory.
func newReader(t *testing.T, flags ...string) *reader {
	t.Helper()
	r := &reader{flags: flags, dir: t.TempDir(), scratch: t.TempDir(), done: make(chan struct{})}
	server, receiver := freeAddress(t), freeAddress(t)
	_, port, _ := strings.Cut(receiver, ":")
	r.ports = strings.NewReplacer("127.0.0.1:8080", server, "127.0.0.1:9000", receiver, "127.0.0.1:3000", freeAddress(t),
		"keyhook listen --from", "keyhook listen --from", // does not listen
		"keyhook listen", "keyhook listen --port "+port)
	for _, link := range []string{filepath.Join(r.dir, "keyhook"), filepath.Join(r.scratch, "keyhook")} { // ./keyhook, and on the PATH
		if err := os.Symlink(typed(), link); err != nil {
			t.Fatal(err)
		}
	}
	r.server = start(t, r.dir, append(r.flags, "KEYHOOK_SERVER_LISTEN="+server)...)

	shell := r.bash(t)
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, tell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	shell.ExtraFiles = []*os.File{tell} // its file 3
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	tell.Close()
	r.shell = in
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(r.done)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			select {
			case r.done <- struct{}{}:
			case <-t.Context().Done():
			}
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) // with everything that it has left in the background
		_ = shell.Wait()
		<-ended
		said.Close()
	})
	return r
}

// bash returns a shell in a process group of its own.
func (r *reader) bash(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(tool(t, "bash"), args...)
	cmd.Dir = r.dir
	cmd.Env = []string{"PATH=" + r.scratch + ":" + os.Getenv("PATH"), "TMPDIR=" + r.scratch, raceOptions}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// rightSignature is what `keyhook listen` prints for a delivery.
const rightSignature = "X-Service-Signature is right"

// publishes matches commands that publish an event.
var publishes = regexp.MustCompile(`events publish|/api/v1/events/ `)

// stopsServer matches the commands for which the documents tell the reader to stop the server.
var stopsServer = regexp.MustCompile(`(?m)^keyhook (restore|rekey)\b`)

// follow does with a block what a reader does.
func (r *reader) follow(t *testing.T, b block) {
	t.Helper()
	text := r.ports.Replace(b.text)
	switch {
	case b.file != "":
		if err := os.WriteFile(filepath.Join(r.dir, b.file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	case b.language != "sh":
	case strings.HasPrefix(b.text, "keyhook listen"):
		r.closeTerminal(t)
		r.listen(t, text)
	case stopsServer.MatchString(b.text):
		r.server.end(syscall.SIGTERM)
		r.paste(t, b, text)
		listen := "KEYHOOK_SERVER_LISTEN=" + strings.TrimPrefix(r.server.url, "http://")
		r.server = start(t, r.dir, slices.Concat(r.flags, r.exported(t), []string{listen})...)
	default:
		r.paste(t, b, text)
	}
}

// paste runs the commands in the shell. Every command must succeed. A command in the list of failures must fail.
func (r *reader) paste(t *testing.T, b block, text string) {
	t.Helper()
	for line := range strings.Lines(b.text) {
		if command := strings.TrimSpace(line); failures[command] != 0 {
			ported := r.ports.Replace(command)
			text = strings.Replace(text, ported, fmt.Sprintf("if %s; then false; else test $? = %d; fi", ported, failures[command]), 1)
		}
	}
	r.scripts++
	script := filepath.Join(r.scratch, fmt.Sprintf("%d.sh", r.scripts))
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	arrived := strings.Count(r.output(t, r.heard), rightSignature)
	fmt.Fprintf(r.shell, "set -e; . %s >%[1]s.out 2>&1 </dev/null; set +e; env >%s/env; echo done >&3\n", script, r.scratch)
	succeeded := false
	select {
	case _, succeeded = <-r.done:
	case <-time.After(patience):
	}
	out := r.output(t, script+".out")
	if !succeeded {
		t.Fatalf("%s fails, or takes more than %s:\n%s\n%s", b, patience, text, out)
	}
	b.check(t, out)
	if strings.Contains(text, "keyhook listen --port") { // in the background
		r.heard = script + ".out"
		r.await(t, "Listening on", 1)
	}
	if r.heard != "" && publishes.MatchString(text) {
		r.await(t, rightSignature, arrived+1)
	}
}

// listen runs `keyhook listen` in a terminal of its own.
func (r *reader) listen(t *testing.T, text string) {
	t.Helper()
	r.scripts++
	r.heard = filepath.Join(r.scratch, fmt.Sprintf("%d.sh.out", r.scripts))
	out, err := os.Create(r.heard)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	r.terminal = r.bash(t, "-c", "exec "+text)
	r.terminal.Stdout, r.terminal.Stderr = out, out
	if err := r.terminal.Start(); err != nil {
		t.Fatal(err)
	}
	r.await(t, "Listening on", 1)
}

// await waits until `keyhook listen` has printed a text n times.
func (r *reader) await(t *testing.T, text string, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); strings.Count(r.output(t, r.heard), text) < n; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %q after %s:\n%s", text, patience, r.output(t, r.heard))
		}
	}
}

// closeTerminal presses Ctrl-C in the terminal, if one is open. No delivery may have had a wrong signature.
func (r *reader) closeTerminal(t *testing.T) {
	t.Helper()
	if r.terminal != nil {
		_ = syscall.Kill(-r.terminal.Process.Pid, syscall.SIGINT)
		_ = r.terminal.Wait() // it may have ended by itself
		r.terminal = nil
	}
	if out := r.output(t, r.heard); strings.Contains(out, "-Signature is WRONG") {
		t.Errorf("the receiver gets deliveries of other examples:\n%s", out)
	}
	r.heard = ""
}

// output returns what a file has so far; nothing if there is no file.
func (r *reader) output(t *testing.T, file string) string {
	t.Helper()
	if file == "" {
		return ""
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// exported returns the settings that the shell has exported. A server that is started in this shell gets them.
func (r *reader) exported(t *testing.T) (settings []string) {
	t.Helper()
	for line := range strings.Lines(r.output(t, filepath.Join(r.scratch, "env"))) {
		if strings.HasPrefix(line, "KEYHOOK_") {
			settings = append(settings, strings.TrimSpace(line))
		}
	}
	return settings
}
