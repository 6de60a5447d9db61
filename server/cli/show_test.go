package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/cli"
)

// keysOf returns a handler for a list of n API keys, in pages.
func keysOf(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var begin, limit int
		_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &begin)
		_, _ = fmt.Sscan(r.URL.Query().Get("limit"), &limit)
		data := []map[string]any{}
		for i := begin; i < min(begin+limit, n); i++ {
			data = append(data, map[string]any{"id": fmt.Sprint("key_", i), "name": "a\x1b[31m\nb"})
		}
		body := map[string]any{"data": data, "has_more": begin+limit < n, "next_cursor": nil}
		if begin+limit < n {
			body["next_cursor"] = fmt.Sprint(begin + limit)
		}
		w.Header().Set("Content-Type", jsonType)
		_ = json.NewEncoder(w).Encode(body)
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		flags    string
		items    int
		requests []string // their queries
		more     bool
	}{
		{"", 50, []string{"limit=50"}, true},
		{"--limit 250", 250, []string{"limit=200", "cursor=200&limit=50"}, true},
		{"--all", 430, []string{"limit=200", "cursor=200&limit=200", "cursor=400&limit=200"}, false},
		{"--cursor 420", 10, []string{"cursor=420&limit=50"}, false},
	} {
		t.Run("have the requested length: "+tt.flags, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, keysOf(430))
			code, stdout, stderr := s.ask(t, aToken, "keys list --quiet "+tt.flags)
			if lines := strings.Count(stdout, "\n"); code != cli.ExitOK || lines != tt.items || stderr != "" {
				t.Errorf("code %d, %d lines, errors %q", code, lines, stderr)
			}
			var requests []string
			for _, r := range s.asked {
				_, query, _ := strings.Cut(strings.Fields(r)[1], "?")
				requests = append(requests, query)
			}
			if d := cmp.Diff(tt.requests, requests); d != "" {
				t.Errorf("requests (-want +got):\n%s", d)
			}
			var list struct {
				Data    []any
				HasMore bool    `json:"has_more"`
				Next    *string `json:"next_cursor"`
			}
			_, stdout, _ = s.ask(t, aToken, "keys list --json "+tt.flags)
			if err := json.Unmarshal([]byte(stdout), &list); err != nil || len(list.Data) != tt.items || list.HasMore != tt.more || (list.Next != nil) != tt.more {
				t.Errorf("error %v, %d items, more %t", err, len(list.Data), list.HasMore)
			}
			if strings.Count(stdout, "\n") != 1 {
				t.Error("it is not one document on one line")
			}
		})
	}

	t.Run("continue after empty pages, but not without end", func(t *testing.T) {
		t.Parallel()
		for last, items := range map[int]string{5: "key_5\n", 100: ""} {
			s := newStub(t, func(w http.ResponseWriter, r *http.Request) {
				n := 0
				_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &n)
				body := fmt.Sprintf(`{"data":[],"has_more":true,"next_cursor":"%d"}`, min(n+1, 50))
				if n == last {
					body = fmt.Sprintf(`{"data":[{"id":"key_%d"}],"has_more":false,"next_cursor":null}`, n)
				}
				says(200, jsonType, body)(w, r)
			})
			if code, stdout, stderr := s.ask(t, aToken, "keys list --quiet"); code != cli.ExitOK || stdout != items || stderr != "" || len(s.asked) > 51 {
				t.Errorf("code %d, output %q, errors %q after %d requests", code, stdout, stderr, len(s.asked))
			}
		}
	})

	t.Run("escape control characters, so each item has one line", func(t *testing.T) {
		t.Parallel()
		s := newStub(t, keysOf(1))
		_, stdout, _ := s.ask(t, aToken, "keys list")
		if lines := strings.Split(stdout, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[1], `key_0  a\x1b[31m\nb  `) {
			t.Errorf("output %q", stdout)
		}
	})
}

// shellWords splits a line like a shell, as far as the examples need it.
func shellWords(text string) (words []string) {
	var quote rune
	word, begun := "", false
	for _, r := range strings.TrimSpace(text) + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r != ' ':
			word, begun = word+string(r), true
		case begun:
			words, word, begun = append(words, word), "", false
		}
	}
	return words
}

// TestCommands checks the help and runs the examples of every command of the nouns.
func TestCommands(t *testing.T) {
	t.Parallel()
	_, help, _ := run(t, nil)
	for _, group := range []string{"Run a server:", "Talk to a server:", "Try and test:"} {
		if !strings.Contains(help, group) {
			t.Errorf("the help has no %q", group)
		}
	}
	if strings.Contains(help, "Additional Commands") {
		t.Errorf("a command has no group:\n%s", help)
	}
	for path, example := range cli.ClientExamples() {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(example, path) {
				t.Errorf("the example is %q", example)
			}
			code, stdout, stderr := run(t, append(strings.Fields(path)[1:], "--help"))
			if code != cli.ExitOK || stderr != "" || !strings.Contains(stdout, "Examples:") {
				t.Errorf("code %d, errors %q, output:\n%s", code, stderr, stdout)
			}
			s := newStub(t, says(404, "application/problem+json", `{"detail":"seen"}`))
			for typed := range strings.Lines(example) {
				words := shellWords(typed)
				if strings.ContainsAny(typed, "<…") || slices.Contains(words, "--url") || slices.Contains(words, "-f") {
					continue // it reads a file, contains a placeholder, or has a --url of its own
				}
				code, _, stderr := run(t, append(words[1:], "--url="+s.URL, "--token="+aToken))
				if code != cli.ExitFailure || !strings.Contains(stderr, "seen") && !strings.Contains(stderr, "404") {
					t.Errorf("%s: code %d, errors %q", typed, code, stderr)
				}
			}
		})
	}
}
