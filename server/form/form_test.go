package form_test

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/form"
)

func FuzzBody(f *testing.F) {
	for _, seed := range []string{``, `{}`, `{"a":1}`, ` { "a" : [ 1 , { } ] } `, `{"\u0061":"\""}`, `{"a":1}x`, `[`, `{"a"`, "\xff", `{"":{"":{}}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		members, err := form.Split(slices.Clone(body))
		if err != nil {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("accepted a text that is not a JSON object: %q", body)
		}
		for name, value := range want {
			if got, ok := members[name]; !ok || got != strings.TrimSpace(string(value)) {
				t.Errorf("%q: %q, want %q", name, got, value)
			}
		}
		if len(members) != len(want) {
			t.Errorf("%d members, want %d", len(members), len(want))
		}
	})
}

// TestDepth shows that brackets in strings are text, wherever the string ends.
func TestDepth(t *testing.T) {
	t.Parallel()
	deep, flat := strings.Repeat("[", 100)+strings.Repeat("]", 100), strings.Repeat("[", 1000)
	for name, test := range map[string]struct {
		body    string
		refused bool
	}{
		"100 levels":                                {`{"a":` + deep[1:199] + `}`, false},
		"101 levels":                                {`{"a":` + deep + `}`, true},
		"brackets in a string":                      {`{"a":"` + flat + `"}`, false},
		"brackets after an escaped quote":           {`{"a":"\"` + flat + `"}`, false},
		"brackets between escapes":                  {`{"a":"\n` + flat + `\\"}`, false},
		"a list of lists":                           {`{"a":[` + strings.Repeat(`["x"],`, 200) + `[]]}`, false},
		"101 levels after a string":                 {`{"a":"x","b":` + deep + `}`, true},
		"101 levels after an escaped backslash":     {`{"a":"\\","b":` + deep + `}`, true},
		"101 levels after a quote and a backslash":  {`{"a":"\"\\","b":` + deep + `}`, true},
		"brackets in a name that begins with quote": {`{"\"` + flat + `":1}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := form.Split([]byte(test.body)); (err != nil) != test.refused {
				t.Errorf("error %v", err)
			}
		})
	}
}

// pageAfter reads a cursor of a list.
func pageAfter(list, cursor string) (after form.Position, ok bool) {
	q := form.ParseQuery("cursor="+url.QueryEscape(cursor), []string{"cursor"})
	page, err := q.Page(list)
	return page.After, err == nil
}

func FuzzCursor(f *testing.F) {
	f.Add("list", int64(1), int64(0), "")
	f.Add("/api/v1/events/\norg_x", int64(1<<62), int64(-5), "AAAA")
	f.Fuzz(func(t *testing.T, list string, row, at int64, text string) {
		if read, ok := pageAfter(list, text); ok {
			if again := form.Cursor(list, read); again != text {
				t.Errorf("%q and %q are the same position", text, again)
			}
		}
		want := form.Position{Row: row, At: at, Since: at}
		written := form.Cursor(list, want)
		got, ok := pageAfter(list, written)
		if ok != (row > 0) || ok && got != want {
			t.Errorf("%+v comes back as %+v, %v", want, got, ok)
		}
		if _, ok := pageAfter(list+"x", written); ok {
			t.Error("a cursor is accepted by another list")
		}
		for i := range written {
			damaged := []byte(written)
			damaged[i] ^= 1
			if _, ok := pageAfter(list, string(damaged)); ok {
				t.Errorf("damage at %d is not noticed", i)
			}
		}
	})
}
