package output_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/cli/output"
)

func TestTable(t *testing.T) {
	t.Parallel()

	t.Run("aligns columns by characters", func(t *testing.T) {
		t.Parallel()
		table := output.Table{}
		table.Add("FIGURE", "VALUE", "UNIT")
		table.Add("speed", "5", "ms")
		table.Add("größen", "123456", "kB")
		want := "FIGURE  VALUE   UNIT\nspeed   5       ms\ngrößen  123456  kB\n"
		if d := cmp.Diff(want, table.String()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})

	t.Run("escapes its cells", func(t *testing.T) {
		t.Parallel()
		table := output.Table{}
		table.Add("a\x1b[2Jb\nc", "d")
		if got, want := table.String(), `a\x1b[2Jb\nc  d`+"\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestEscape(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want, lines string }{
		{"plain", "plain", "plain"},
		{"全角\u3000 ü", "全角\u3000 ü", "全角\u3000 ü"},
		{"a\nb\tc", `a\nb\tc`, "a\nb\\tc"},
		{"\x1b[31mred\a", `\x1b[31mred\a`, `\x1b[31mred\a`},
		{"left\u202eright", `left\u202eright`, `left\u202eright`},
		{"\x9b0m \xff", `\x9b0m \xff`, `\x9b0m \xff`},
	} {
		if got := output.Escape(tt.text); got != tt.want {
			t.Errorf("Escape(%q) = %q, want %q", tt.text, got, tt.want)
		}
		if got := output.EscapeLines(tt.text); got != tt.lines {
			t.Errorf("EscapeLines(%q) = %q, want %q", tt.text, got, tt.lines)
		}
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Acme":                  `"Acme"`,
		"a\nb":                  `"a\nb"`,
		strings.Repeat("x", 81): `"` + strings.Repeat("x", 79) + `…"`,
		"key svc_abcdef" + strings.Repeat("0", 30) + "!": `"key svc_abcdef…!"`,
	} {
		if got := output.Quote(text); got != want {
			t.Errorf("Quote(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	value := map[string]string{"text": "<a>\u202e\u009b\U000e0001\n"}
	var line, indented bytes.Buffer
	if err := output.WriteJSONLine(&line, value); err != nil {
		t.Fatal(err)
	}
	if err := output.WriteJSON(&indented, value); err != nil {
		t.Fatal(err)
	}
	want := `"text": "<a>\u202e\u009b\udb40\udc01\n"`
	if got := line.String(); got != "{"+strings.Replace(want, ": ", ":", 1)+"}\n" {
		t.Errorf("line %q", got)
	}
	if got := indented.String(); got != "{\n  "+want+"\n}\n" {
		t.Errorf("indented %q", got)
	}
}

func TestIsTerminal(t *testing.T) {
	t.Parallel()
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if output.IsTerminal(file) {
		t.Error("a file is a terminal")
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if output.IsTerminal(null) {
		t.Error(os.DevNull + " is a terminal")
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2048, 2049, 4096} {
		name := t.TempDir() + "/file"
		text := strings.Repeat("x", n)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{name, "-"} {
			got, err := output.ReadFile(strings.NewReader(text), path, 2048)
			if isFit := n <= 2048; (err == nil) != isFit || isFit && got != text || err != nil && (got != "" || err.Error() != "the file must not be larger than 2 KiB") {
				t.Errorf("%d bytes of %s: %d bytes, %v", n, path, len(got), err)
			}
		}
	}
	if _, err := output.ReadFile(nil, t.TempDir()+"/canary", 1); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestParseHeaders(t *testing.T) {
	t.Parallel()
	got, err := output.ParseHeaders("Authorization: Bearer a:b\r\n\n  X-Kept  \n")
	if diff := cmp.Diff(map[string]any{"Authorization": "Bearer a:b", "X-Kept": nil}, got); diff != "" || err != nil {
		t.Errorf("error %v, headers (-want +got):\n%s", err, diff)
	}
	for text, want := range map[string]string{
		"A: 1\nB: 2\nA: 3": "line 3 of the file repeats a name", "A: 1\n\nA": "line 3 of the file repeats a name",
		"A B: 1": `line 1 of the file must be "Name: value"`, "A:": "the value in line 1", "A: 1\x00": "the value in line 1",
	} {
		if got, err := output.ParseHeaders(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
