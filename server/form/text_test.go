package form_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/form"
)

// read returns the message about the field "x", which a reader of text has given, or "".
func read(t *testing.T, text string, reader func(*form.Form)) string {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return problem(t, string(quoted), reader)
}

// problem is read for any JSON value.
func problem(t *testing.T, value string, reader func(*form.Form)) string {
	t.Helper()
	f := form.Parse([]byte(`{"x":` + value + `}`))
	reader(f)
	if err := f.Err(); err != nil {
		return err.Error()
	}
	return ""
}

// nameReaders read names that people type.
var nameReaders = map[string]func(*form.Form){
	"a label":       func(f *form.Form) { f.Label("x") },
	"a line":        func(f *form.Form) { f.Line("x", 100) },
	"a description": func(f *form.Form) { f.Multiline("x") },
	"an e-mail":     func(f *form.Form) { f.Email("x") },
	"an id":         func(f *form.Form) { f.ExternalID("x") },
	"a slug":        func(f *form.Form) { f.Slug("x") },
}

func TestNamesWithInvisibleCharactersAreRefused(t *testing.T) {
	t.Parallel()
	var refused []rune
	for _, span := range [][2]rune{
		{0x01, 0x08}, {0x0b, 0x1f}, {0x7f, 0x9f}, // controls without tab and line feed, which a description may have
		{0xad, 0xad}, {0x61c, 0x61c}, {0x115f, 0x1160}, {0x180e, 0x180e}, {0x200b, 0x200b}, {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x2064},
		{0x2065, 0x206f}, {0x3164, 0x3164}, {0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f},
	} {
		for r := span[0]; r <= span[1]; r++ {
			refused = append(refused, r)
		}
	}
	for name, reader := range nameReaders {
		t.Run("as in "+name, func(t *testing.T) {
			t.Parallel()
			for _, r := range refused {
				for _, text := range []string{"a" + string(r) + "b", string(r) + "ab@example.com", "ab" + string(r)} {
					if strings.TrimSpace(text) != text { // a label drops white space around it
						continue
					}
					if got := read(t, text, reader); !strings.Contains(got, "x: This ") {
						t.Errorf("%q is accepted: %s", text, got)
					}
				}
			}
		})
	}
	t.Run("and the message names the character", func(t *testing.T) {
		t.Parallel()
		if got := read(t, "acme\u202egnp", nameReaders["a label"]); !strings.Contains(got, "This has the invisible character U+202E; remove it.") {
			t.Error(got)
		}
	})
	for _, text := range []string{"Zoë & Søn", "アクメ株式会社", "شركة", "אקמה", "葛\U000E0100城", "🧑\ufe0f team", "e\u0301", "₿ 100 %",
		"👩\u200d👩\u200d👧", "🏳\ufe0f\u200d🌈", "👩\U0001F3FD\u200d🚀", "نرم\u200cافزار", "क्\u200dष"} {
		t.Run("but not "+text, func(t *testing.T) {
			t.Parallel()
			if got := read(t, text, nameReaders["a label"]); got != "" {
				t.Error(got)
			}
		})
	}
}

func TestAWrongTypeNamesTheRightForm(t *testing.T) {
	t.Parallel()
	scope := func(f *form.Form) { form.Lookup{}.Scope(t.Context(), f, "x") }
	for _, tt := range []struct {
		name, value string
		reader      func(*form.Form)
		want        string
	}{
		{"a scope", `["events:read"]`, scope, `a space-delimited string, such as "events:read events:write"`},
		{"permissions", `"events:read"`, func(f *form.Form) { form.Lookup{}.Permissions(t.Context(), f, "x") }, `an array of strings, such as ["events:read", "events:write"]`},
		{"event types", `"order.created"`, func(f *form.Form) { f.EventTypes("x") }, `an array of strings, such as ["order.created", "user.*"]`},
		{"an event type", `[1]`, func(f *form.Form) { f.EventTypes("x") }, "x.0: This must be a string in quotes."},
		{"a boolean", `"true"`, func(f *form.Form) { f.Bool("x") }, "true or false, without quotes"},
		{"a number", `true`, func(f *form.Form) { f.Integer("x", 1, 9) }, "a whole number from 1 to 9, without quotes."},
		{"a number in quotes", `"5"`, func(f *form.Form) { f.Integer("x", 1, 9) }, "a whole number from 1 to 9, without quotes."},
		{"a limit in quotes", `"5"`, func(f *form.Form) { f.Limit("x", 1, 9) }, "a whole number from 1 to 9, without quotes."},
		{"a limit", `true`, func(f *form.Form) { f.Limit("x", 1, 9) }, "a whole number from 1 to 9, without quotes."},
		{"a limit out of range", `10`, func(f *form.Form) { f.Limit("x", 1, 9) }, "a whole number from 1 to 9, without quotes."},
		{"a name", `1`, nameReaders["a label"], "a string in quotes."},
		{"an id", `1`, nameReaders["an id"], "a string in quotes."},
		{"a time", `1893456000`, func(f *form.Form) { f.Time("x") }, `a string with a time, such as "2030-01-31T12:00:00Z".`},
		{"an expiry", `30`, func(f *form.Form) { f.Expiry("x") }, `a string with a time, such as "2030-01-31T12:00:00Z".`},
		{"every event type", `["*"]`, func(f *form.Form) { f.EventTypes("x") }, `An empty list means every event type: send [] instead of ["*"].`},
		{"every event type in another way", `["*.*"]`, func(f *form.Form) { f.EventTypes("x") }, `An empty list means every event type`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := problem(t, tt.value, tt.reader); !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestWebURL has URLs of pages that a browser opens, such as the one to which a portal leads back.
func TestWebURL(t *testing.T) {
	t.Parallel()
	for text, valid := range map[string]bool{
		"https://shop.example/settings?a=b": true, "http://shop.example": true, "ftp://shop.example/": false, "javascript://shop.example/%0aalert(1)": false,
		"https:///settings": false, "https://user@shop.example/": false, "/settings": false, "https://[": false, "https://<tenant>.shop.example/": false,
		"http://localhost:3000/settings#webhooks": true, "https://schlüssel.example/": true, "https://[::1]:8443/": true,
		"https://shop.example:99999/": false, "https://1.2.3.4.5/": false, "https://shop%.example/": false, "https://xn--a/": false,
	} {
		f := form.Parse([]byte(`{"return_url":"` + text + `"}`))
		if got := f.WebURL("return_url"); (f.Err() == nil && got != nil) != valid {
			t.Errorf("%s: valid %t", text, f.Err() == nil)
		}
	}
}
