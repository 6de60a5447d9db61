package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
		{"a backlog below none", "--backlog -1",
			`invalid argument "-1" for "--backlog" flag: it takes a whole number from 0 to 10000000`},
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
	for _, want := range []string{"--events n", "1 to 10000000 (default 40000)", "--fanout n", "--body n", "--connections n", "--backlog n", "--json"} {
		if code != cli.ExitOK || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("code %d, errors %q, no %q in:\n%s", code, stderr, want, stdout)
		}
	}
	if _, all, _ := run(t, nil); strings.Contains(all, "counterpart") || !strings.Contains(all, "bench") {
		t.Errorf("the help shows what is for bench alone, or not bench:\n%s", all)
	}
}

func TestBenchTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cli.WriteTable(&out,
		cli.Figure{Title: "no target", Value: 12345.6},
		cli.Figure{Title: "enough", Value: 0.0417, AtMost: 0.15},
		cli.Figure{Title: "too much of it", Value: 9.996, AtMost: 6},
		cli.Figure{Title: "a ratio that is enough", Value: 8000, Ratio: 0.28, AtLeast: 0.28},
		cli.Figure{Title: "one that is not", Value: 7000, Ratio: 0.279, AtLeast: 0.28},
		cli.Figure{Title: "nobody knows", AtMost: 80, Absent: true},
	)
	want := `
FIGURE                               VALUE  UNIT  RATIO  TO  TARGET
no target                            12346  ms
enough                              0.0417  ms               <= 0.15        ok
too much of it                          10  ms               <= 6           above
a ratio that is enough                8000  ms     0.28      ratio >= 0.28  ok
one that is not                       7000  ms     0.28      ratio >= 0.28  below
nobody knows            not on this system  ms               <= 80
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestBenchRequest(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 123_456_789)
	type event struct {
		Type string
		Data struct {
			Text string
			At   json.Number
		}
	}
	read := func(t *testing.T, text, path string, into any) int {
		t.Helper()
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != path || r.Header.Get("Authorization") != "ApiKey k" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("error %v, %s with %v", err, r.URL, r.Header)
		}
		if err := json.Unmarshal(body, into); err != nil {
			t.Error(err)
		}
		return len(body)
	}
	for _, size := range []int{128, 1024, 256 << 10} {
		t.Run(fmt.Sprintf("one event of %d bytes has that size and the time", size), func(t *testing.T) {
			t.Parallel()
			var got event
			length := read(t, cli.PublishRequest("k", "bench.healthy_49", size, 0, at), "/api/v1/events/", &got)
			if length != size || got.Type != "bench.healthy_49" || got.Data.At != "1800000000123456789" {
				t.Errorf("%d bytes, %s at %s", length, got.Type, got.Data.At)
			}
		})
	}
	t.Run("each event of a batch has the time", func(t *testing.T) {
		t.Parallel()
		var got struct{ Events []event }
		read(t, cli.PublishRequest("k", "a", 128, 3, at), "/api/v1/events/batch/", &got)
		if len(got.Events) != 3 {
			t.Fatalf("%d events", len(got.Events))
		}
		for _, e := range got.Events {
			if e.Data.At != "1800000000123456789" {
				t.Errorf("at %s", e.Data.At)
			}
		}
	})
}

func TestBenchReceiver(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(cli.NewBenchReceiver())
	t.Cleanup(receiver.Close)
	ask := func(t *testing.T, path string, into any) {
		t.Helper()
		resp, err := receiver.Client().Get(receiver.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			t.Error(err)
		}
	}
	post := func(path, body string) error {
		resp, err := receiver.Client().Post(receiver.URL+path, "application/json", strings.NewReader(body))
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	type report struct {
		Received int
		P50      float64 `json:"p50_ms"`
		P99      float64 `json:"p99_ms"`
	}

	t.Run("tells how long deliveries took, and begins anew", func(t *testing.T) {
		t.Parallel()
		for i := range 100 { // published 1 s, 2 s, … 100 s ago
			sent := time.Now().Add(-time.Duration(i+1) * time.Second)
			if err := post("/take/one", cli.DeliveredText("bench.one", 300, sent)); err != nil {
				t.Fatal(err)
			}
		}
		if err := post("/take/one", `{"no":"stamp"}`); err != nil {
			t.Fatal(err)
		}
		if err := post("/take/other", cli.DeliveredText("bench.other", 300, time.Now())); err != nil {
			t.Fatal(err)
		}
		var got report
		ask(t, "/report/one", &got)
		if got.Received != 100 || got.P50 < 50_000 || got.P50 > 51_000 || got.P99 < 99_000 || got.P99 > 100_000 {
			t.Errorf("%+v", got)
		}
		if ask(t, "/report/one", &got); got != (report{}) {
			t.Errorf("again: %+v", got)
		}
	})

	t.Run("lets requests hang until it is told to cut them", func(t *testing.T) {
		t.Parallel()
		cut := make(chan error)
		for range 2 {
			go func() { cut <- post("/hang/hanging", cli.DeliveredText("bench.hanging", 300, time.Now())) }()
		}
		var hanging int
		for deadline := time.Now().Add(20 * time.Second); hanging < 2 && time.Now().Before(deadline); {
			ask(t, "/hanging", &hanging)
		}
		if hanging != 2 {
			t.Fatalf("%d hang", hanging)
		}
		ask(t, "/release", new(any))
		for range 2 {
			if err := <-cut; err == nil {
				t.Error("one was answered")
			}
		}
	})
}
