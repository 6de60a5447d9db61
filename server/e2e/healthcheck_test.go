package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestBesideAServer runs healthcheck and doctor beside a running server. Neither disturbs the server or opens its database.
func TestBesideAServer(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), freeAddress(t)
	p := start(t, dir, "KEYHOOK_SERVER_LISTEN="+address)
	for _, name := range []string{"healthcheck", "doctor"} {
		t.Run(name, func(t *testing.T) {
			strace, opened := tool(t, "strace"), filepath.Join(t.TempDir(), "opened")
			cmd := keyhook(t, dir, name, "--listen="+address)
			cmd.Args = append([]string{strace, "-f", "-qq", "-o", opened, "-e", "trace=open,openat,openat2,unlink,unlinkat,rename,renameat", cmd.Path}, cmd.Args[1:]...)
			cmd.Path = strace
			if code, said := finish(t, cmd); code != 0 {
				t.Fatalf("exit code %d: %s", code, said)
			} else if !strings.Contains(said, "ready") || name == "doctor" && !strings.Contains(said, fmt.Sprintf("process %d owns", p.cmd.Process.Pid)) {
				t.Errorf("it said:\n%s", said)
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
	p.publish(t, "a")
	if code := p.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if code, said := finish(t, keyhook(t, t.TempDir(), "healthcheck", "--listen="+address)); code != 1 || strings.Count(said, "\n") != 1 {
		t.Errorf("after the end of the server: exit code %d: %s", code, said)
	}
}

// TestDoctorAsksTheServer runs doctor without the flags of the running server.
func TestDoctorAsksTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, withoutToken, "KEYHOOK_WEBHOOKS_TIMEOUT=7s") // with --dev
	code, said := finish(t, keyhook(t, dir, "doctor", "http://127.0.0.1:9/hook"))
	for _, part := range []string{
		`webhooks.timeout is "7s" there and "15s" here`, `egress.allow_http is "true" there and "false" here`,
		"A subscription may have the URL http://127.0.0.1:9/hook", "The address 127.0.0.1 of the receiver is allowed",
	} {
		if !strings.Contains(said, part) {
			t.Errorf("exit code %d, it does not say %q:\n%s", code, part, said)
		}
	}
	if strings.Contains(said, operatorToken) {
		t.Errorf("it shows a secret:\n%s", said)
	}
	if _, text := get(t, p.url+"/readyz"); strings.Contains(text, "settings") {
		t.Errorf("anybody may read the settings: %s", text)
	}
	p.end(syscall.SIGTERM)
	if _, said := finish(t, keyhook(t, dir, "doctor")); !strings.Contains(said, "No server is running, so doctor judges the settings that it found") {
		t.Errorf("after the end of the server:\n%s", said)
	}
	p = start(t, dir, withoutToken)
	if p.end(syscall.SIGTERM); !strings.Contains(p.printed(t), "kat_") {
		t.Error("doctor counted as the first authenticated request")
	}
}

// TestSocketOfAnotherUser runs a command as another user. The command is refused, and names the owner of the socket.
func TestSocketOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		require(t, "root, who can be another user")
	}
	dir := t.TempDir()
	start(t, dir)
	cmd := keyhook(t, dir, "keys", "list")
	asNobody(t, cmd)
	code, said := finish(t, cmd)
	want := "keyhook: the socket " + filepath.Join(dir, "keyhook.db.sock") + " belongs to another user; run this command as that user or as root, or give --url and --token\n"
	if code != 1 || said != want {
		t.Errorf("exit code %d: %q, want %q", code, said, want)
	}
}
