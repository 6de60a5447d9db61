package webhook_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/keyhook/keyhook/storage/webhook"
)

func TestCutBody(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ in, want string }{
		"nothing stays nothing":                     {"", ""},
		"2000 characters stay":                      {strings.Repeat("a", 2000), strings.Repeat("a", 2000)},
		"the 2001st goes":                           {strings.Repeat("a", 2001), strings.Repeat("a", 2000)},
		"characters are counted, not bytes":         {strings.Repeat("ß", 2001), strings.Repeat("ß", 2000)},
		"a character is never cut in two":           {strings.Repeat("a", 1999) + "😀😀", strings.Repeat("a", 1999) + "😀"},
		"invalid UTF-8 is replaced":                 {"a\xffb", "a\uFFFDb"},
		"a character that the read cut is replaced": {"a\xf0\x9f", "a\uFFFD\uFFFD"},
		"NUL and control characters go":             {"a\x00b\x1b[31m\rc\x7f", "ab[31mc"},
		"line feeds and tabs stay":                  {"a\n\tb", "a\n\tb"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := webhook.CutBody([]byte(test.in)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestCutHeader(t *testing.T) {
	t.Parallel()
	many, want := http.Header{}, ""
	for i := range 30 {
		name := fmt.Sprintf("X-%02d", i)
		many.Set(name, "v")
		if i < 20 {
			want += name + ": v\n"
		}
	}
	for name, test := range map[string]struct {
		in   http.Header
		want string
	}{
		"nothing stays nothing":                        {nil, ""},
		"cookies and the connection's fields go":       {http.Header{"Set-Cookie": {"session=1"}, "Date": {"today"}, "Content-Length": {"0"}, "X-Request-Id": {"7"}}, "X-Request-Id: 7\n"},
		"several values are one":                       {http.Header{"Via": {"a", "b"}}, "Via: a, b\n"},
		"20 fields stay, by name":                      {many, want},
		"a value has 256 characters":                   {http.Header{"A": {strings.Repeat("ß", 300)}}, "A: " + strings.Repeat("ß", 256) + "\n"},
		"a name has 256 characters":                    {http.Header{strings.Repeat("A", 300): {"b"}}, strings.Repeat("A", 256) + ": b\n"},
		"a value stays in its line and is valid UTF-8": {http.Header{"A": {"b\nC: \xff\x00d"}}, "A: b C: \uFFFDd\n"},
	} {
		if got := webhook.CutHeader(test.in, nil); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func FuzzCutBody(f *testing.F) {
	for _, seed := range []string{"", "a\xffb", strings.Repeat("ß", 2001), "\x00\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := webhook.CutBody(body)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > webhook.MaxResponseBody || strings.ContainsRune(got, 0) {
			t.Errorf("%q became %q", body, got)
		}
		if again := webhook.CutBody([]byte(got)); again != got {
			t.Errorf("cutting %q again gave %q", got, again)
		}
	})
}
