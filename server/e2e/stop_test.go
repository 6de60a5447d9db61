package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStopKeepsTheStore ends the process while work is under way that has to be stored. The work goes on for a second
// after the signal, so a store that stops at the signal is gone by then.
func TestStopKeepsTheStore(t *testing.T) {
	t.Parallel()

	t.Run("until the attempts on the wire are recorded", func(t *testing.T) {
		t.Parallel()
		receiver, dir := hang(t), t.TempDir()
		p := start(t, dir)
		sub := p.subscribe(t, receiver.url)
		p.publish(t, "a")
		await(t, receiver.arrived)
		p.stopSlowly(t)
		receiver.answer()
		if code := p.wait(t); code != 0 {
			t.Errorf("exit code %d:\n%s", code, p.said())
		}
		var log struct{ Data []struct{ Outcome string } }
		start(t, dir).must(t, "GET", "/api/v1/webhooks/subscriptions/"+sub+"/deliveries/", nil, &log)
		if len(log.Data) != 1 || log.Data[0].Outcome != "succeeded" {
			t.Errorf("the log holds %+v", log.Data)
		}
	})

	t.Run("until the requests under way are answered", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		p := start(t, dir)
		body := `{"type":"late","data":{}}`
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		answers := bufio.NewReader(conn)
		// The server answers "100 Continue" when the handler reads the body, so the request is under way then.
		if _, err := fmt.Fprintf(conn, "POST /api/v1/events/ HTTP/1.1\r\nHost: keyhook\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", operatorToken, len(body)); err != nil {
			t.Fatal(err)
		}
		if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
			t.Fatalf("answered %q, error %v", line, err)
		}
		if _, err := answers.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		p.stopSlowly(t)
		if _, err := io.WriteString(conn, body); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusAccepted {
			t.Errorf("status %d: %s, error %v", answer.StatusCode, text, err)
		}
		if code := p.wait(t); code != 0 {
			t.Errorf("exit code %d:\n%s", code, p.said())
		}
		var events struct{ Data []struct{ Type string } }
		start(t, dir).must(t, "GET", "/api/v1/events/", nil, &events)
		if len(events.Data) == 0 || events.Data[0].Type != "late" {
			t.Errorf("stored are %+v", events.Data)
		}
	})
}

// stopSlowly sends SIGTERM and returns a second after the process takes no more connections.
func (p *process) stopSlowly(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			break
		}
		_ = conn.Close()
		if time.Now().After(deadline) {
			t.Fatalf("it takes connections %s after the signal:\n%s", patience, p.said())
		}
	}
	select {
	case <-p.ended:
		t.Fatalf("it has ended before its work:\n%s", p.said())
	case <-time.After(time.Second):
	}
}

// TestStopDuringTheStart ends processes at many moments of their first start.
func TestStopDuringTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	early := 0
	for i := range 20 {
		cmd := keyhook(t, dir, "serve", "--listen=127.0.0.1:0")
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = io.Discard, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for { // the process handles signals before it makes files
			if _, err := os.Stat(filepath.Join(dir, "keyhook.db.lock")); err == nil {
				break
			}
			sleep(t.Context(), 100*time.Microsecond)
		}
		sleep(t.Context(), time.Duration(i)*time.Millisecond)
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil || strings.Contains(said.String(), "keyhook:") {
			t.Fatalf("after %d ms: error %v:\n%s", i, err, said.String())
		}
		if strings.Contains(said.String(), "before the start was complete") {
			early++
		}
		for _, suffix := range []string{"", ".lock", ".key", ".key.new"} {
			if err := os.Remove(filepath.Join(dir, "keyhook.db"+suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d of 20 starts were stopped before they were complete", early)
}
