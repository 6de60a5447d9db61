package e2e

import (
	"bufio"
	"syscall"
	"testing"
)

// TestListenEndsOnce sends SIGTERM until the process is gone. The command timeout sends it twice.
func TestListenEndsOnce(t *testing.T) {
	t.Parallel()
	for range 10 {
		cmd := keyhook(t, t.TempDir(), "listen", "--port=0")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !bufio.NewScanner(out).Scan() {
			t.Fatalf("it says nothing: %v", cmd.Wait())
		}
		ended := make(chan error)
		go func() { ended <- cmd.Wait() }()
		for waiting := true; waiting; {
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
				waiting = false
			default:
				_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			}
		}
	}
}
