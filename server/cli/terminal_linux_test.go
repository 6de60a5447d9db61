package cli_test

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/cli"
)

// terminal returns a terminal at which somebody types a text.
func terminal(t *testing.T, typed string) *os.File {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keyboard.Close() })
	var number, unlocked int32
	for request, argument := range map[uintptr]*int32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &unlocked} {
		if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, keyboard.Fd(), request, uintptr(unsafe.Pointer(argument))); failed != 0 {
			t.Fatal(failed)
		}
	}
	screen, err := os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	if _, err := keyboard.WriteString(typed); err != nil {
		t.Fatal(err)
	}
	return screen
}

// TestQuestionsAtATerminal looks at the requests before and after an answer. The figures in a question are those of the same request as a
// dry run.
func TestQuestionsAtATerminal(t *testing.T) {
	t.Parallel()
	const sub, figures = "/api/v1/webhooks/subscriptions/sub_01h455vb4pex5vsknk084sn02q/", `{"pending":7,"since":"2030-01-31T00:00:00.000Z","deliveries":12,"events":5,"subscriptions":2}`
	const recovery = "subscriptions recover sub_01h455vb4pex5vsknk084sn02q --since 2030-01-31T00:00:00Z --activate"
	const list = "events recover --state exhausted --since 2030-01-31T00:00:00Z --audit"
	recovered := []string{
		"POST " + sub + "recover/ Bearer " + aToken + ` {"activate":true,"dry_run":true,"since":"2030-01-31T00:00:00.000Z"}`,
		"POST " + sub + "recover/ Bearer " + aToken + ` {"activate":true,"since":"2030-01-31T00:00:00.000Z"}`,
	}
	listed := []string{
		"POST /api/v1/webhooks/recover/ Bearer " + aToken + ` {"audit_events":true,"dry_run":true,"since":"2030-01-31T00:00:00.000Z","state":"exhausted"}`,
		"POST /api/v1/webhooks/recover/ Bearer " + aToken + ` {"audit_events":true,"since":"2030-01-31T00:00:00.000Z","state":"exhausted"}`,
	}
	deleted := []string{"DELETE " + sub + " Bearer " + aToken}
	for name, tt := range map[string]struct {
		command, typed, says string
		asked                []string
		code                 int
	}{
		"a recovery":                   {recovery, "yes\n", "are sent: 7. Deliveries that failed since 2030-01-31T00:00:00.000Z and are sent again: 12. Type yes: ", recovered, cli.ExitOK},
		"a recovery that nobody wants": {recovery, "no\n", "not confirmed, so nothing was changed", recovered[:1], cli.ExitFailure},
		"a dry run asks nothing":       {recovery + " --dry-run", "", "", recovered[:1], cli.ExitOK},
		"--yes asks nothing":           {recovery + " --yes", "", "", recovered, cli.ExitOK},
		"the recovery of a list":       {list, "yes\n", "are sent: 7. New ones: 12, of 5 events to 2 subscriptions. Type yes: ", listed, cli.ExitOK},
		"an answer without a word":     {list, "\n", "not confirmed", listed[:1], cli.ExitFailure},
		"a deletion":                   {"subscriptions delete sub_01h455vb4pex5vsknk084sn02q", "yes\n", "for good?", deleted, cli.ExitOK},
		"a deletion that is declined":  {"subscriptions delete sub_01h455vb4pex5vsknk084sn02q", "y\n", "for good?", nil, cli.ExitFailure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, says(200, jsonType, figures))
			var out, errs bytes.Buffer
			root := cli.New(cli.Options{In: terminal(t, tt.typed), Out: &out, Err: &errs})
			code := cli.Run(t.Context(), root, append(strings.Fields(tt.command), "--url", s.URL, "--token", aToken))
			if code != tt.code || !strings.Contains(errs.String(), tt.says) || (tt.says == "") != (errs.Len() == 0) {
				t.Errorf("code %d, errors %q", code, errs.String())
			}
			if d := cmp.Diff(tt.asked, s.asked); d != "" {
				t.Errorf("requests (-want +got):\n%s", d)
			}
		})
	}
}
