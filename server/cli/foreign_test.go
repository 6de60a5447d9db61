package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli"
	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// hostile is text that would command a terminal: escape sequences, C1 controls, marks of direction, line separators.
var hostile = func() string {
	var text strings.Builder
	text.WriteString("x\x00\a\b\r\x1b[2J\x1b]0;title\a\x7f")
	for _, block := range [][2]rune{{0x80, 0x9f}, {0x200b, 0x200f}, {0x202a, 0x202e}, {0x2066, 0x2069}, {0x2028, 0x2029}, {0xfeff, 0xfeff}, {0xe0001, 0xe0001}} {
		for r := block[0]; r <= block[1]; r++ {
			text.WriteString(string(r))
		}
	}
	return text.String() + "y"
}()

// obeyed finds a character of a printed text that a terminal would obey or hide. Line feeds are our own.
func obeyed(printed string) string {
	for _, r := range printed {
		if r != '\n' && strings.ContainsRune(hostile, r) && r != 'x' && r != 'y' && !strings.ContainsRune("[2J]0;title", r) {
			return fmt.Sprintf("%U", r)
		}
	}
	if !utf8.ValidString(printed) {
		return "invalid UTF-8"
	}
	return ""
}

// hostileItem is a resource of any type, in which each text is hostile.
func hostileItem() map[string]any {
	item := map[string]any{}
	for name := range strings.FieldsSeq(`id key name status scope key_prefix created_at expires_at last_used_at description url event_types blocked_by
		consecutive_failures pending_deliveries last_error external_id headers secret token type timestamp state attempts verdict detail advice plan
		email user_id role closed_at erased_at event_id event_type outcome response_status error next_attempt_at organization_id url_host reason since
		code failing_since at details built_in members api_keys deliveries pending subscription_id`) {
		item[name] = hostile
	}
	nested := maps.Clone(item)
	maps.Copy(item, map[string]any{
		"creator": nested, "request": map[string]any{"headers": nested}, "response": nested, "actor": nested, "target": nested, "organization": nested,
		"checks": []any{nested}, "deliveries": []any{nested}, "reasons": nested, "data": nested, "closed_at": nil, "erased_at": nil, "kind": "plan",
		"permissions": []string{"platform:read", "platform:write", "platform:act_as", "webhooks:read", "webhooks:write", hostile},
	})
	return item
}

// hostileServers answer every request with hostile text.
var hostileServers = map[string]http.HandlerFunc{
	"a success": func(w http.ResponseWriter, r *http.Request) {
		item := hostileItem()
		if r.Method == "GET" && strings.Count(r.URL.Path, "_") == 0 && !strings.HasSuffix(r.URL.Path, "/whoami/") {
			item = map[string]any{"data": []any{item, item}, "has_more": true, "next_cursor": hostile}
		}
		_ = json.NewEncoder(w).Encode(item)
	},
	"a refusal": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"title": hostile, "detail": hostile, "code": hostile, "request_id": hostile, "conflicting_id": hostile,
			"errors": []any{map[string]any{"field": hostile, "message": hostile}},
		})
	},
	"no JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, hostile) },
}

// shellWord is a word of an example, perhaps with quotes.
var shellWord = regexp.MustCompile(`'[^']*'|"(\\.|[^"])*"|[^\s'"]+`)

// examples returns the examples of all commands that call a server.
func examples() (all [][]string) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			walk(child)
		}
		if cmd.Flag(client.FlagToken) == nil || cmd.Name() == "listen" { // its examples do not end
			return
		}
		for line := range strings.Lines(cmd.Example) {
			line, _, _ = strings.Cut(line, " <")
			var words []string
			for _, word := range shellWord.FindAllString(line, -1) {
				words = append(words, strings.ReplaceAll(strings.Trim(word, `'"`), `\"`, `"`))
			}
			if len(words) > 1 && !strings.Contains(line, "-file") && !strings.Contains(line, "customers.yaml") {
				all = append(all, words[1:])
			}
		}
	}
	walk(cli.New(cli.Options{}))
	return append(all, []string{"apply", "-f", "-", "--prune", "--dry-run"})
}

// Not parallel: it sets the environment, because some commands have a --url of their own.
func TestForeignTextOnATerminal(t *testing.T) {
	for name, respond := range hostileServers {
		t.Run(name+" with text that a terminal would obey is escaped by every command", func(t *testing.T) {
			server := httptest.NewServer(respond)
			t.Cleanup(server.Close)
			t.Setenv(client.EnvURL, server.URL)
			t.Setenv(client.EnvToken, "kat_x")
			escaped := 0
			for _, args := range append(examples(), []string{"listen", "--from", server.URL, "--event-types", "*"}) {
				forms := []string{"--json", "--quiet", "--json=false"}
				if args[0] == "api" || args[0] == "apply" || args[0] == "listen" {
					forms = []string{""}
				}
				for _, form := range forms {
					_, stdout, stderr := run(t, append(append([]string{args[0]}, strings.Fields(form)...), args[1:]...))
					if found := obeyed(stdout + stderr); found != "" {
						t.Errorf("keyhook %q %s prints %s:\n%q\n%q", args, form, found, stdout, stderr)
					}
					if strings.Contains(stdout+stderr, `\u202e`) {
						escaped++
					}
				}
			}
			if escaped < 50 {
				t.Errorf("only %d commands showed the text", escaped)
			}
		})
	}
}

// buffer is a bytes.Buffer for concurrent use.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestForeignTextInDeliveries(t *testing.T) {
	t.Parallel()
	program := httptest.NewServer(hostileServers["no JSON"])
	t.Cleanup(program.Close)
	for _, form := range []string{"--forward=" + program.URL, "--json", "--fail=503"} {
		t.Run("listen "+strings.Split(form, "=")[0]+" escapes what a sender and a program send", func(t *testing.T) {
			t.Parallel()
			var out buffer
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan int)
			root := cli.New(cli.Options{In: strings.NewReader(""), Out: &out, Err: &out, Schema: storagetest.Schema(t)})
			go func() { ended <- cli.Run(ctx, root, []string{"listen", "--port=0", "--secret=whsec_x", form}) }()
			var found []string
			for address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`); found == nil; <-time.After(time.Millisecond) {
				found = address.FindAllString(out.String(), 1)
			}
			for _, method := range []string{"POST", "GET"} {
				req, err := http.NewRequestWithContext(t.Context(), method, found[0]+"%C2%9B%E2%80%AE", strings.NewReader(hostile+"\n"+hostile))
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"X-Service-Event-Id", "X-Service-Event-Type", "X-Service-Attempt", "X-Service-Signature", "Webhook-Signature"} {
					req.Header.Set(name, "\u009b\u202e")
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			stop()
			<-ended
			if found := obeyed(out.String()); found != "" || !strings.Contains(out.String(), `\u202e`) {
				t.Errorf("prints %s:\n%q", found, out.String())
			}
		})
	}
	t.Run("verify escapes headers and a body", func(t *testing.T) {
		t.Parallel()
		for _, form := range []string{"--json=false", "--json"} {
			var out bytes.Buffer
			root := cli.New(cli.Options{In: strings.NewReader(hostile), Out: &out, Err: &out})
			cli.Run(t.Context(), root, []string{"verify", "--secret=" + hostile, "--body=-", "--header", "X-Service-Event-Id: " + hostile,
				"--header", "X-Service-Timestamp: " + hostile, "--header", hostile + "-Signature: v1," + hostile, form})
			if found := obeyed(out.String()); found != "" {
				t.Errorf("%s prints %s:\n%q", form, found, out.String())
			}
		}
	})
	t.Run("an error escapes what the user typed", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{{hostile}, {"keys", hostile}, {"keys", "get", hostile}, {"keys", "list", "--" + hostile}, {"keys", "list", "--status", hostile}} {
			_, stdout, stderr := run(t, args)
			if found := obeyed(stdout + stderr); found != "" {
				t.Errorf("%q prints %s: %q", args, found, stdout+stderr)
			}
		}
	})
}
