package apply_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/cli/apply"
	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// target is a server to apply files to.
type target struct {
	client.Client
	writes  atomic.Int64 // requests that may change something
	failAt  int64        // the write that fails: its connection breaks; 0 fails none
	isAfter bool         // it breaks after the server has done the work
	status  int          // of the response to that write, in place of a broken connection
	before  func()       // runs before the next write
	stop    func()
}

// serve starts a server on a new database.
func serve(t *testing.T) *target {
	t.Helper()
	store, stop := storagetest.OpenWith(t, storagetest.Options(t, filepath.Join(t.TempDir(), "keyhook.db")))
	s, err := server.New(server.Options{
		Store: store, Tester: noTester{}, CheckURL: egress.Policy{}.CheckURL, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &target{}
	listening := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // of a broken connection, a part
		r.Body = io.NopCloser(bytes.NewReader(body))
		writes := r.Method != "GET" && !bytes.Contains(body, []byte(`"dry_run":true`))
		if before := f.before; writes && before != nil {
			before()
		}
		fails, to := writes && f.writes.Add(1) == f.failAt, w
		if fails && !f.isAfter {
			panic(http.ErrAbortHandler)
		}
		if fails {
			to = httptest.NewRecorder()
		}
		s.ServeHTTP(to, r)
		if fails && f.status == 0 {
			panic(http.ErrAbortHandler)
		}
		if fails {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(f.status)
			_, _ = io.WriteString(w, `{"title":"Internal Server Error","detail":"Try again.","code":"internal_error"}`) // the client sees an error
		}
	}))
	listening.Config.ErrorLog = nil
	f.Client = client.Client{Base: listening.URL, Authorization: "Bearer " + storagetest.OperatorToken}
	f.stop = func() { listening.Close(); stop() }
	t.Cleanup(f.stop)
	return f
}

type noTester struct{}

func (noTester) Test(context.Context, int64, string, string) (webhook.Attempt, error) {
	return webhook.Attempt{}, nil
}

// apply applies a file and returns what was printed.
func (f *target) apply(t *testing.T, file string, o apply.Options) (string, error) {
	t.Helper()
	var out bytes.Buffer
	if o.File == "" {
		o.File, o.In = "-", strings.NewReader(file)
	}
	if o.Confirm == nil {
		o.Confirm = func(string) error { return nil }
	}
	err := apply.Run(t.Context(), f.Client, output.Printer{Out: &out, Notes: io.Discard}, o)
	return out.String(), err
}

type writerFunc func(text []byte) (int, error)

func (w writerFunc) Write(text []byte) (int, error) { return w(text) }

// do makes a request by hand, and returns the body of the response.
func (f *target) do(t *testing.T, method, path, body string, organization ...string) map[string]any {
	t.Helper()
	c := f.Client
	if len(organization) > 0 {
		c.Organization = organization[0]
	}
	var content []byte
	if body != "" {
		content = []byte(body)
	}
	got, err := c.Do(t.Context(), method, "/api/v1/"+path, content)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	result := map[string]any{}
	if len(got) > 0 {
		if err := json.Unmarshal(got, &result); err != nil {
			t.Fatal(err)
		}
	}
	return result
}

const small = `
plans:
  - {name: startup, webhooks: true, api_rate_limit_per_minute: 600}
organizations:
  - {external_id: customer-7, name: Customer 7, plan: startup}
users:
  - {external_id: ada, name: Ada, email: ada@example.com}
members:
  - {organization: customer-7, user: ada, role: owner}
subscriptions:
  - {organization: customer-7, external_id: orders, url: "https://EXAMPLE.com/hook", event_types: [order.*, order.paid]}
`

func TestApply(t *testing.T) {
	t.Parallel()
	t.Run("prints the difference, makes it, and then finds nothing to do", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		printed, err := f.apply(t, small, apply.Options{DryRun: true})
		if want := "+ plan startup  webhooks true  api_rate_limit_per_minute 600\n" +
			"+ organization customer-7  name \"Customer 7\"  plan startup\n" +
			"+ user ada  name Ada  email ada@example.com\n+ member customer-7/ada  role owner\n" +
			"+ subscription customer-7/orders  url https://example.com/…  event_types [order.* order.paid]\n= 0 unchanged\n"; printed != want || err != nil {
			t.Errorf("error %v, printed:\n%s\nwant:\n%s", err, printed, want)
		}
		if n := f.writes.Load(); n > 0 {
			t.Errorf("the dry run made %d writes", n)
		}
		if printed, err = f.apply(t, small, apply.Options{}); err != nil || strings.Count(printed, "\nsecret of customer-7/orders: whsec_") != 1 {
			t.Fatalf("error %v, printed:\n%s", err, printed)
		}
		before := f.writes.Load()
		if printed, err = f.apply(t, small, apply.Options{Prune: true}); err != nil || printed != "= 5 unchanged\n" || f.writes.Load() != before {
			t.Errorf("error %v, %d writes, printed:\n%s", err, f.writes.Load()-before, printed)
		}
	})
	t.Run("takes any object as the example of an event type", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		const file = "event_types:\n  - type: order.paid\n    description: >\n      An order\n      was paid\n    example: {lines: [{sku: A, n: 1.5, x: null}], at: 2030-01-31, ok: true}\n"
		printed, err := f.apply(t, file, apply.Options{})
		if want := "+ event_type order.paid  description \"An order was paid\"  " +
			`example {"at":"2030-01-31","lines":[{"n":1.5,"sku":"A","x":null}],"ok":true}` + "\n= 0 unchanged\n"; printed != want || err != nil {
			t.Errorf("error %v, printed:\n%s\nwant:\n%s", err, printed, want)
		}
		if printed, err = f.apply(t, file, apply.Options{Prune: true}); err != nil || printed != "= 1 unchanged\n" {
			t.Errorf("error %v, printed:\n%s", err, printed)
		}
	})
	t.Run("keeps all digits of a number", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		const list = `[123456789012345678901,0.1234567890123456789,1.50,16]`
		file := strings.ReplaceAll(small, "event_types: [order.*, order.paid]", "filter: [{path: a, op: in, value: "+strings.Replace(list, "16", "0x10", 1)+"}]")
		if _, err := f.apply(t, file, apply.Options{}); err != nil {
			t.Fatal(err)
		}
		got, err := f.Do(t.Context(), "GET", "/api/v1/webhooks/subscriptions/?organization=all", nil)
		if want := `"value":` + list; err != nil || !strings.Contains(string(got), want) {
			t.Errorf("error %v, want %s:\n%s", err, want, got)
		}
	})
	t.Run("changes the fields of the file only, if the object was there before", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		f.do(t, "POST", "plans/", `{"name":"pro","webhooks":true,"api_rate_limit_per_minute":1,"max_subscriptions":7}`)
		printed, err := f.apply(t, "plans: [{name: pro, api_rate_limit_per_minute: null}]", apply.Options{})
		if err != nil || printed != "~ plan pro  api_rate_limit_per_minute 1 -> null\n= 0 unchanged\n" {
			t.Errorf("error %v, printed:\n%s", err, printed)
		}
		if got := f.do(t, "GET", "plans/pro/", ""); got["webhooks"] != true || got["max_subscriptions"] != 7.0 {
			t.Errorf("%v", got)
		}
	})
	t.Run("gives the fields that the file leaves out their usual value, if apply created the object", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		for _, file := range []string{
			"plans: [{name: pro, webhooks: true, max_api_keys: 3, api_rate_limit_per_minute: 1}]", "plans: [{name: pro, api_rate_limit_per_minute: 1}]",
		} {
			if _, err := f.apply(t, file, apply.Options{}); err != nil {
				t.Fatal(err)
			}
		}
		if got := f.do(t, "GET", "plans/pro/", ""); got["webhooks"] != false || got["max_api_keys"] != nil {
			t.Errorf("%v", got)
		}
	})
	t.Run("refuses another value of a field that never changes, and leaves it alone if the file does", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		for _, file := range []string{`{key: "a:b", internal: true}`, `{key: "a:b"}`} {
			if _, err := f.apply(t, "permissions: ["+file+"]", apply.Options{}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := f.apply(t, `permissions: [{key: "a:b", internal: false}]`, apply.Options{})
		if err == nil || !strings.Contains(err.Error(), "internal: This never changes after the creation, and it is true on the server") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("refuses a subscription on a plan without webhooks before it changes anything", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		_, err := f.apply(t, strings.Replace(small, "webhooks: true, ", "", 1), apply.Options{})
		if err == nil || !strings.Contains(err.Error(), `standard input:11: subscription customer-7/orders: The organization's plan does not include webhooks`) || f.writes.Load() > 0 {
			t.Errorf("error %v, %d writes", err, f.writes.Load())
		}
	})
}

func TestPrune(t *testing.T) {
	t.Parallel()
	t.Run("never prunes what it did not create, even after a change", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		f.do(t, "POST", "users/", `{"email":"hand@example.com","external_id":"hand"}`)
		if _, err := f.apply(t, "users: [{external_id: hand, name: Hand, email: hand@example.com}, {external_id: x, name: X, email: x@example.com}]", apply.Options{}); err != nil {
			t.Fatal(err)
		}
		if printed, err := f.apply(t, "users: []", apply.Options{Prune: true}); err != nil || printed != "- user x\n= 0 unchanged\n" {
			t.Errorf("error %v, printed:\n%s", err, printed)
		}
		if got := f.do(t, "GET", "users/hand/", ""); got["name"] != "Hand" {
			t.Errorf("%v", got)
		}
	})
	t.Run("closes an organization that has something, and says first what ends with it", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		if _, err := f.apply(t, small, apply.Options{}); err != nil {
			t.Fatal(err)
		}
		f.do(t, "POST", "webhooks/subscriptions/", `{"url":"https://hand.example/"}`, "customer-7")
		file, _, _ := strings.Cut(small, "organizations:")
		for _, dry := range []bool{true, false} {
			printed, err := f.apply(t, file, apply.Options{Prune: true, DryRun: dry})
			if want := "- subscription customer-7/orders\n- member customer-7/ada\n- user ada\n- organization customer-7  name \"Customer 7\"  members 1  subscriptions 2\n= 1 unchanged\n"; err != nil || printed != want {
				t.Errorf("error %v, printed:\n%s", err, printed)
			}
		}
		if printed, err := f.apply(t, file, apply.Options{Prune: true}); err != nil || printed != "= 1 unchanged\n" {
			t.Errorf("error %v, printed:\n%s", err, printed)
		}
		if printed, err := f.apply(t, small, apply.Options{Prune: true}); err != nil || !strings.HasPrefix(printed, "+ organization customer-7 ") {
			t.Errorf("error %v, printed:\n%s", err, printed)
		}
	})
	t.Run("asks before it removes anything, and changes nothing without the answer", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		if _, err := f.apply(t, small, apply.Options{}); err != nil {
			t.Fatal(err)
		}
		before, asked, no := f.writes.Load(), "", errors.New("no")
		o := apply.Options{Prune: true, Confirm: func(question string) error { asked = question; return no }}
		file, _, _ := strings.Cut(small, "organizations:")
		file = strings.Replace(file, "600", "700", 1)
		_, err := f.apply(t, file, o)
		const want = "Remove 4 objects? This closes 1 organization for good."
		if !errors.Is(err, no) || asked != want || f.writes.Load() != before {
			t.Errorf("error %v, %d writes, asked:\n%s", err, f.writes.Load()-before, asked)
		}
		if got := f.do(t, "GET", "plans/startup/", ""); got["api_rate_limit_per_minute"] != 600.0 {
			t.Errorf("%v", got)
		}
		asked, o.Confirm = "", func(question string) error { asked = question; return nil }
		if _, err := f.apply(t, strings.Replace(small, "600", "700", 1), o); err != nil || asked != "" {
			t.Errorf("nothing to remove: error %v, asked %s", err, asked)
		}
		if _, err := f.apply(t, strings.Replace(small, "subscriptions:", "#", 1)[:strings.Index(small, "subscriptions:")], o); err != nil || asked != "Remove 1 object?" {
			t.Errorf("error %v, asked %s", err, asked)
		}
	})
	t.Run("removes nothing that came while it asked", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		if _, err := f.apply(t, small, apply.Options{}); err != nil {
			t.Fatal(err)
		}
		file, _, _ := strings.Cut(small, "members:")
		_, err := f.apply(t, file, apply.Options{Prune: true, Confirm: func(string) error {
			_, err := f.apply(t, "organizations: [{external_id: late, name: Late, plan: growth}]", apply.Options{})
			return err
		}})
		if err == nil || !strings.Contains(err.Error(), "organization late: Nobody was asked about this, because it has come meanwhile. Compare again.") {
			t.Errorf("error %v", err)
		}
		for _, kept := range []string{"organizations/late/", "organizations/customer-7/members/"} {
			if got := f.do(t, "GET", kept, ""); got["name"] != "Late" && len(got["data"].([]any)) != 1 {
				t.Errorf("%s: %v", kept, got)
			}
		}
	})
	t.Run("refuses to prune what the file still needs", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		if _, err := f.apply(t, small, apply.Options{}); err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(small, "600}\n")
		_, err := f.apply(t, rest, apply.Options{Prune: true})
		if err == nil || !strings.Contains(err.Error(), `standard input:2: plan: prune would remove the plan "startup", which is not in the document`) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("says what stays because something depends on it", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		if _, err := f.apply(t, "plans: [{name: pro, api_rate_limit_per_minute: 1}]", apply.Options{}); err != nil {
			t.Fatal(err)
		}
		f.do(t, "POST", "organizations/", `{"name":"By hand","plan":"pro"}`)
		_, err := f.apply(t, "plans: []", apply.Options{Prune: true})
		if err == nil || !strings.Contains(err.Error(), "standard input: plan pro: This plan cannot be removed") {
			t.Errorf("error %v", err)
		}
	})
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	t.Run("go to the file, which only its owner can read, and not to the output", func(t *testing.T) {
		t.Parallel()
		f, name := serve(t), filepath.Join(t.TempDir(), "secrets.jsonl")
		printed, err := f.apply(t, small, apply.Options{SecretsFile: name})
		info, statErr := os.Stat(name)
		if err != nil || statErr != nil || strings.Contains(printed, "whsec_") || info.Mode().Perm() != 0o600 {
			t.Fatalf("errors %v, %v, mode %v, printed:\n%s", err, statErr, info.Mode(), printed)
		}
		if got := read(t, name); !strings.HasPrefix(got, `{"organization":"customer-7","external_id":"orders","secret":"whsec_`) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s", got)
		}
	})
	t.Run("are checked to be writable before anything changes", func(t *testing.T) {
		t.Parallel()
		f, open, shared := serve(t), filepath.Join(t.TempDir(), "open"), filepath.Join(t.TempDir(), "shared")
		for name, mode := range map[string]os.FileMode{open: 0o604, shared: 0o640} { // each for others of one sort only
			if err := os.WriteFile(name, nil, mode); err != nil {
				t.Fatal(err)
			}
		}
		other := filepath.Join(t.TempDir(), "a.secret")
		if err := os.WriteFile(other, []byte("an-old-secret-of-32-characters--\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if text := read(t, other); text != "an-old-secret-of-32-characters--\n" {
				t.Errorf("the file with something else is %q", text)
			}
		}()
		for _, name := range []string{open, shared, other, t.TempDir(), "/nowhere/secrets"} {
			if _, err := f.apply(t, small, apply.Options{SecretsFile: name}); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
				t.Errorf("%s: error %v", name, err)
			}
		}
		if n := f.writes.Load(); n > 0 {
			t.Errorf("%d writes", n)
		}
	})
	for name, status := range map[string]int{"connection breaks": 0, "server fails": http.StatusInternalServerError} {
		t.Run("are in the file if the "+name+" after the server created the subscription", func(t *testing.T) {
			t.Parallel()
			f, name := serve(t), filepath.Join(t.TempDir(), "secrets.jsonl")
			f.failAt, f.isAfter, f.status = 1, true, status
			if _, err := f.apply(t, small, apply.Options{SecretsFile: name}); err == nil {
				t.Fatal("no error")
			}
			if printed, err := f.apply(t, small, apply.Options{SecretsFile: name}); err != nil || printed != "= 5 unchanged\n" {
				t.Fatalf("error %v, printed:\n%s", err, printed)
			}
			if got := read(t, name); strings.Count(got, "whsec_") != 1 {
				t.Errorf("%s", got)
			}
		})
	}
	t.Run("are taken out of the file again if the server refuses the subscription", func(t *testing.T) {
		t.Parallel()
		f, name := serve(t), filepath.Join(t.TempDir(), "secrets.jsonl")
		if err := os.WriteFile(name, []byte("{\"torn\":"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := f.apply(t, strings.ReplaceAll(small, "https://EXAMPLE.com", "http://10.0.0.1"), apply.Options{SecretsFile: name})
		if err == nil || !strings.Contains(err.Error(), "nothing was changed; standard input:11: url: ") || f.writes.Load() > 0 {
			t.Errorf("error %v", err)
		}
		if got := read(t, name); got != "{\"torn\":" {
			t.Errorf("%q", got)
		}
		f.before = func() { // somebody takes the address after the comparison
			f.before = nil
			f.do(t, "POST", "users/", `{"email":"ada@example.com"}`)
		}
		if _, err = f.apply(t, small, apply.Options{SecretsFile: name}); err == nil || !strings.Contains(err.Error(), "standard input:7: email: ") {
			t.Errorf("error %v", err)
		}
		if got := read(t, name); got != "{\"torn\":" {
			t.Errorf("%q", got)
		}
		if _, err = f.apply(t, strings.ReplaceAll(small, "ada@", "eve@"), apply.Options{SecretsFile: name}); err != nil {
			t.Error(err)
		}
		if got := read(t, name); !strings.HasPrefix(got, "{\"torn\":\n{\"organization\":") || strings.Count(got, "\n") != 2 {
			t.Errorf("%q", got)
		}
	})
	t.Run("are imported from a file, relative to the file that names it, and never printed", func(t *testing.T) {
		t.Parallel()
		f, dir := serve(t), t.TempDir()
		file := filepath.Join(dir, "keyhook.yaml")
		for name, text := range map[string]string{
			file:                             strings.Replace(small, "event_types: [order.*, order.paid]", "secret_file: old.secret, headers_file: headers", 1),
			filepath.Join(dir, "old.secret"): "an-old-secret-of-32-characters!!\n", filepath.Join(dir, "headers"): "X-Token: hush-hush\n",
		} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		printed, err := f.apply(t, "", apply.Options{File: file})
		if err != nil || !strings.Contains(printed, "headers [x-token]") || strings.Contains(printed, "ecret") || strings.Contains(printed, "hush") {
			t.Errorf("error %v, printed:\n%s", err, printed)
		}
		if printed, err := f.apply(t, "", apply.Options{File: file}); err != nil || printed != "= 5 unchanged\n" {
			t.Errorf("error %v, printed:\n%s", err, printed)
		}
		// Another host gets the headers only if their values come with the URL.
		text := strings.ReplaceAll(read(t, file), "EXAMPLE.com", "hooks.example.com")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		printed, err = f.apply(t, "", apply.Options{File: file})
		if err != nil || !strings.HasPrefix(printed, "~ subscription customer-7/orders  url https://example.com/… -> https://hooks.example.com/…\n") {
			t.Errorf("error %v, printed:\n%s", err, printed)
		}
	})
}

func TestSecretsAreNotLost(t *testing.T) {
	t.Parallel()
	t.Run("are not written to a file to which another run writes", func(t *testing.T) {
		t.Parallel()
		f, name := serve(t), filepath.Join(t.TempDir(), "secrets.jsonl")
		other, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if err := syscall.Flock(int(other.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		_, err = f.apply(t, small, apply.Options{SecretsFile: name})
		if err == nil || !strings.Contains(err.Error(), "nothing was changed: another apply is writing to") || f.writes.Load() > 0 {
			t.Errorf("error %v, %d writes", err, f.writes.Load())
		}
		other.Close()
		if _, err := f.apply(t, small, apply.Options{SecretsFile: name}); err != nil || strings.Count(read(t, name), "whsec_") != 1 {
			t.Errorf("error %v", err)
		}
	})
	t.Run("are only those of the subscriptions that this run creates, and not another run meanwhile", func(t *testing.T) {
		t.Parallel()
		more := small + "  - {organization: customer-7, external_id: parcels, url: \"https://example.com/\"}\n"
		for file, want := range map[string]int{small: 0, more: 1} {
			for _, name := range []string{"", filepath.Join(t.TempDir(), "secrets.jsonl")} {
				f := serve(t)
				f.before = func() { // this run has compared
					f.before = nil
					if _, err := f.apply(t, small, apply.Options{}); err != nil {
						t.Error(err)
					}
				}
				shown, err := f.apply(t, file, apply.Options{SecretsFile: name})
				if name != "" {
					shown = read(t, name)
				}
				if err != nil || strings.Count(shown, "whsec_") != want || strings.Contains(shown, "orders: whsec_") || strings.Contains(shown, `"orders"`) {
					t.Errorf("error %v, want %d secrets:\n%s", err, want, shown)
				}
			}
		}
	})
	t.Run("are looked for in all files that the document names, also in a dry run", func(t *testing.T) {
		t.Parallel()
		file := small + "  - {organization: customer-7, external_id: parcels, url: \"https://example.com/\", secret_file: gone}\n"
		file = strings.ReplaceAll(file, "event_types: [order.*, order.paid]", "secret_file: gone")
		printed, err := serve(t).apply(t, file, apply.Options{DryRun: true})
		if err == nil || printed != "" || !strings.Contains(err.Error(), "standard input:11: secret_file: ") || !strings.Contains(err.Error(), "standard input:12: secret_file: ") {
			t.Errorf("error %v, printed:\n%s", err, printed)
		}
	})
	t.Run("are in the error if they cannot be printed", func(t *testing.T) {
		t.Parallel()
		f := serve(t)
		full := writerFunc(func(text []byte) (int, error) {
			if bytes.Contains(text, []byte("whsec_")) {
				return 0, io.ErrShortWrite
			}
			return len(text), nil
		})
		err := apply.Run(t.Context(), f.Client, output.Printer{Out: full, Notes: io.Discard}, apply.Options{File: "-", In: strings.NewReader(small)})
		if err == nil || !strings.Contains(err.Error(), "(the subscriptions exist, with these secrets)\nsecret of customer-7/orders: whsec_") {
			t.Errorf("error %v", err)
		}
	})
}

func TestParts(t *testing.T) {
	t.Parallel()
	f := serve(t)
	var file strings.Builder
	file.WriteString("members:\n  - {organization: c, user: u1499, role: member}\norganizations:\n  - {external_id: c, name: C, plan: growth}\nusers:\n")
	for i := range 1500 {
		fmt.Fprintf(&file, "  - {external_id: u%d, name: U, email: u%d@example.com}\n", i, i)
	}
	var notes bytes.Buffer
	run := func(o apply.Options) string {
		t.Helper()
		notes.Reset()
		var out bytes.Buffer
		o.File, o.In, o.Confirm = "-", strings.NewReader(file.String()), func(string) error { return nil }
		if err := apply.Run(t.Context(), f.Client, output.Printer{Out: &out, Notes: &notes}, o); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	t.Run("are not compared beyond the first one in a dry run, which says so", func(t *testing.T) {
		printed := run(apply.Options{DryRun: true})
		if strings.Count(printed, "\n+ ") != 999 || !strings.Contains(notes.String(), "not all or nothing") ||
			!strings.Contains(notes.String(), "The other 502 objects") || f.writes.Load() > 0 {
			t.Errorf("%d writes, notes %s", f.writes.Load(), notes.String())
		}
	})
	t.Run("make what one request cannot, and say that it is not all or nothing", func(t *testing.T) {
		if _, err := f.apply(t, "organizations:\n  - {external_id: gone, name: Gone, plan: free}\n", apply.Options{}); err != nil {
			t.Fatal(err)
		}
		printed := run(apply.Options{Prune: true})
		if f.writes.Load() != 4 || !strings.Contains(notes.String(), "not all or nothing") || !strings.Contains(printed, "+ member c/u1499") ||
			!strings.Contains(printed, "\n- organization gone") {
			t.Errorf("%d writes, notes %s", f.writes.Load(), notes.String())
		}
		if printed := run(apply.Options{Prune: true}); printed != "= 1502 unchanged\n" || notes.Len() > 0 {
			t.Errorf("printed %s, notes %s", printed, notes.String())
		}
	})
	t.Run("are halved if their audit events make too many deliveries", func(t *testing.T) {
		f := serve(t)
		subscribe := func(description string) string {
			var file strings.Builder
			file.WriteString("organizations:\n  - {external_id: c, name: C, plan: enterprise}\nsubscriptions:\n")
			for i := range 150 {
				fmt.Fprintf(&file, "  - {organization: c, external_id: s%d, url: 'https://example.com/', event_types: [webhook_subscription_updated], audit_events: true, description: %s}\n",
					i, description)
			}
			return file.String()
		}
		for _, description := range []string{"first", "second"} {
			before := f.writes.Load()
			if _, err := f.apply(t, subscribe(description), apply.Options{SecretsFile: filepath.Join(t.TempDir(), "secrets")}); err != nil {
				t.Fatal(err)
			}
			if n := f.writes.Load() - before; n != map[string]int64{"first": 1, "second": 3}[description] {
				t.Errorf("%d writes for the %s description", n, description)
			}
		}
		if printed, err := f.apply(t, subscribe("second"), apply.Options{}); err != nil || printed != "= 151 unchanged\n" {
			t.Errorf("printed %s, error %v", printed, err)
		}
	})
	t.Run("say what was made if a later one has a mistake", func(t *testing.T) {
		_, err := serve(t).apply(t, strings.Replace(file.String(), "role: member", "role: none", 1), apply.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), "this part of the file changed nothing; standard input:2: role: ") ||
			!strings.Contains(err.Error(), "; 1000 of 1502 objects are as the file says") {
			t.Errorf("error %v", err)
		}
	})
}
