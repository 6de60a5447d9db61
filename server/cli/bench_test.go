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
			`invalid argument "0" for "--events" flag: it takes a whole number from 1 to 10000000`},
		{"fewer than none", "--events -5",
			`invalid argument "-5" for "--events" flag: it takes a whole number from 1 to 10000000`},
		{"more events than a number holds", "--events 99999999999999999999",
			`invalid argument "99999999999999999999" for "--events" flag: it takes a whole number from 1 to 10000000`},
		{"what is no number", "--events many",
			`invalid argument "many" for "--events" flag: it takes a whole number from 1 to 10000000`},
		{"a part of an event", "--events 1.5",
			`invalid argument "1.5" for "--events" flag: it takes a whole number from 1 to 10000000`},
		{"no fan-out", "--fanout 0",
			`invalid argument "0" for "--fanout" flag: it takes a whole number from 1 to 1000`},
		{"a fan-out beyond all use", "--fanout 1001",
			`invalid argument "1001" for "--fanout" flag: it takes a whole number from 1 to 1000`},
		{"a body that is larger than an event may be", "--body 262145",
			`invalid argument "262145" for "--body" flag: it takes a whole number from 128 to 262144`},
		{"a body without room for a type and a time", "--body 127",
			`invalid argument "127" for "--body" flag: it takes a whole number from 128 to 262144`},
		{"no connections", "--connections 0",
			`invalid argument "0" for "--connections" flag: it takes a whole number from 1 to 512`},
		{"more connections than the server takes", "--connections 513",
			`invalid argument "513" for "--connections" flag: it takes a whole number from 1 to 512`},
		{"a flag without its number", "--events", `flag needs an argument: --events`},
		{"an argument", "now", `unknown command "now" for "keyhook bench"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, append([]string{"bench"}, strings.Fields(tt.args)...))
			want := "keyhook: " + tt.stderr + "; see keyhook bench --help\n"
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
