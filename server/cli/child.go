package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// childWait bounds the start of a child.
const childWait = 15 * time.Second

// child is this program run once more, with its log in a file: nobody has to read a pipe for it to go on.
type child struct {
	process *exec.Cmd
	logFile string
	ended   chan error // gets one value
}

// startChild runs this program with the given arguments and settings, and waits until isReady says so. That is asked again
// and again, with the log so far, which is a few lines long at that time.
func startChild(ctx context.Context, logFile string, settings []string, isReady func(log []byte) (bool, error), args ...string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(logFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	c := &child{process: exec.Command(program, args...), logFile: logFile, ended: make(chan error, 1)}
	c.process.Env = append(withoutSettings(os.Environ()), settings...)
	c.process.Stderr = log
	c.process.SysProcAttr = dieWithParent()
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	go func() { c.ended <- c.process.Wait() }()
	if err := c.await(ctx, isReady); err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

// readyLine looks for the line of a log that says "ready", and reads it into ready.
func readyLine(ready any) func(log []byte) (bool, error) {
	return func(log []byte) (bool, error) {
		for line := range bytes.Lines(log) {
			var head struct {
				Message string `json:"msg"`
			}
			if bytes.HasSuffix(line, []byte("\n")) && json.Unmarshal(line, &head) == nil && head.Message == "ready" {
				return true, json.Unmarshal(line, ready)
			}
		}
		return false, nil
	}
}

// await asks until the child is ready.
func (c *child) await(ctx context.Context, isReady func(log []byte) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, childWait, fmt.Errorf("it was not ready within %s", childWait))
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		text, err := os.ReadFile(c.logFile)
		if err != nil {
			return err
		}
		if is, err := isReady(text); is || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case err := <-c.ended:
			c.ended <- err // for kill
			return fmt.Errorf("it ended at once: %w\n%s", err, c.tail())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stop tells the child to stop and expects exit code 0.
func (c *child) stop(ctx context.Context) error {
	if err := c.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-c.ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// kill ends the child if it still runs.
func (c *child) kill() {
	if err := c.process.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		_ = <-c.ended // how a killed process ended does not matter
	}
}

// flushLog waits until the log is on the disk. The many megabytes of a busy server would otherwise hold up
// what else waits for the disk, long after.
func (c *child) flushLog() error {
	log, err := os.OpenFile(c.logFile, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(log.Sync(), log.Close())
}

// What tail shows at most.
const (
	tailLines = 10
	tailBytes = 16 << 10
)

// tail returns the last lines of the log.
func (c *child) tail() string {
	log, err := os.Open(c.logFile)
	if err != nil {
		return "  the log cannot be read: " + err.Error()
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil && info.Size() > tailBytes {
		_, _ = log.Seek(-tailBytes, io.SeekEnd) // else it is read from its beginning
	}
	text, err := io.ReadAll(log)
	if err != nil {
		return "  the log cannot be read: " + err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-tailLines):], "\n  ")
}

// withoutSettings leaves out what would configure a child in another way than its parent does.
func withoutSettings(environment []string) []string {
	var kept []string
	for _, pair := range environment {
		if !strings.HasPrefix(pair, "KEYHOOK_") {
			kept = append(kept, pair)
		}
	}
	return kept
}
