package cli_test

import (
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/cli"
)

func TestBenchRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		args   string
		stderr string
	}{
		{"no events", "--events 0",
			`--events is "0", but must be a whole number from 1 to 10000000`},
		{"fewer than none", "--events -5",
			`--events is "-5", but must be a whole number from 1 to 10000000`},
		{"more events than a number holds", "--events 99999999999999999999",
			`--events is "99999999999999999999", but must be a whole number from 1 to 10000000`},
		{"what is no number", "--events many",
			`--events is "many", but must be a whole number from 1 to 10000000`},
		{"a part of an event", "--events 1.5",
			`--events is "1.5", but must be a whole number from 1 to 10000000`},
		{"no fan-out", "--fanout 0",
			`--fanout is "0", but must be a whole number from 1 to 1000`},
		{"a fan-out beyond all use", "--fanout 1001",
			`--fanout is "1001", but must be a whole number from 1 to 1000`},
		{"a body that is larger than an event may be", "--body 262145",
			`--body is "262145", but must be a whole number from 128 to 262144`},
		{"a body without room for a type and a time", "--body 127",
			`--body is "127", but must be a whole number from 128 to 262144`},
		{"no connections", "--connections 0",
			`--connections is "0", but must be a whole number from 1 to 512`},
		{"more connections than the server takes", "--connections 513",
			`--connections is "513", but must be a whole number from 1 to 512`},
		{"a flag without its number", "--events", `flag needs an argument: --events`},
		{"an argument", "now", `"now" is one argument too many; write: keyhook bench [flags]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, append([]string{"bench"}, strings.Fields(tt.args)...))
			want := "keyhook: " + tt.stderr + " (see keyhook bench --help)\n"
			if code != cli.ExitUsage || stdout != "" || stderr != want {
				t.Errorf("code %d, output %q, errors\n%swant\n%s", code, stdout, stderr, want)
			}
		})
	}
}

func TestBenchHelp(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, []string{"bench", "--help"})
	for _, want := range []string{"--events n", "1 to 10000000 (default 40000)", "--fanout n", "--body n", "--connections n", "--json"} {
		if code != cli.ExitOK || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("code %d, errors %q, no %q in:\n%s", code, stderr, want, stdout)
		}
	}
}
