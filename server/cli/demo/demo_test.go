package demo_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/cli/demo"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// TestMain is also the server that the demo starts. It accepts no request for a new organization.
func TestMain(m *testing.M) {
	if !slices.Contains(os.Args, "serve") {
		os.Exit(m.Run())
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/whoami/" || r.Header.Get("Authorization") != "Bearer "+os.Getenv("KEYHOOK_BOOTSTRAP_TOKEN") {
			fmt.Fprintf(os.Stderr, "refused %s\n", r.URL.Path)
			w.WriteHeader(http.StatusTeapot)
			io.WriteString(w, "no tea")
			return
		}
		io.WriteString(w, `{"user": {"name": "admin"}, "permissions": ["a", "b"]}`)
	}))
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	fmt.Fprintf(os.Stderr, "{\"msg\":\"ready\",\"url\":%q}\n", server.URL)
	<-stopped // or the demo kills it
	os.Exit(0)
}

// TestAWeekOfData reads what the server of demo --keep starts with.
func TestAWeekOfData(t *testing.T) {
	t.Parallel()
	schema := storagetest.Schema(t)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	out, in := io.Pipe()
	cmd := demo.New(schema)
	cmd.SetArgs([]string{"--keep"})
	cmd.SetOut(in)
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	var token, dir string
	for lines := bufio.NewScanner(out); dir == "" && lines.Scan(); {
		if found, isToken := strings.CutPrefix(lines.Text(), "Sign in:  "); isToken {
			token = found
		}
		if _, found, isStop := strings.Cut(lines.Text(), "The data is in "); isStop {
			dir, _, _ = strings.Cut(found, ",")
		}
	}
	store, err := storage.Open(t.Context(), storage.Options{Path: filepath.Join(dir, "keyhook.db"), Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	credential, _ := access.Opaque(token)
	operator, err := store.Directory.PrincipalByToken(t.Context(), credential.Digest())
	if err != nil || !operator.Can(access.PlatformWrite) {
		t.Errorf("the token is that of %+v, error %v", operator, err)
	}
	counts := store.Queue.SubscriptionCounts()
	want := webhook.SubscriptionCounts{Healthy: 5, Failing: 1, Disabled: 2, Paused: 1} // the paused one is disabled, too
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("subscriptions (-want +got):\n%s", diff)
	}
	page, err := store.History.EventPage(t.Context(), access.AllOrganizations, webhook.EventFilter{Limit: 200})
	if err != nil {
		t.Fatal(err)
	}
	newest, oldest := page.Rows[0].At, page.Rows[len(page.Rows)-1].At
	if age := time.Since(time.UnixMilli(newest)); age < 0 || age > 2*time.Hour || oldest >= newest {
		t.Errorf("the newest event is %s old", age)
	}
	listed, err := store.Directory.KeyPage(t.Context(), access.AllOrganizations, access.KeyFilter{Limit: 10})
	if err != nil || len(listed.Rows) != 6 {
		t.Fatalf("%d keys, error %v", len(listed.Rows), err)
	}
	for _, key := range listed.Rows {
		if key.LastUsedAt == nil || time.Since(time.UnixMilli(*key.LastUsedAt)) > time.Hour {
			t.Errorf("the key %s was last used at %v", key.Name, key.LastUsedAt)
		}
	}
	if clock := store.Clock(); !clock.Trusted() {
		t.Error(clock.Warning())
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left behind: %v", dir, err)
	}
}

// TestADemoThatFails is not parallel, because it sets a variable of the process.
func TestADemoThatFails(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var out strings.Builder
	cmd := demo.New("")
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(nil)
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	for _, want := range []string{
		"step 2 (The operator creates a customer): POST /api/v1/organizations/: the response (418 I'm a teapot) does not come from Keyhook",
		"\n\nThe last lines of the server's log:\n  {\"msg\":\"ready\"", "\n  refused /api/v1/organizations/",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not have %q: %v", want, err)
		}
	}
	if strings.Count(err.Error(), "refused") != 1 {
		t.Errorf("it goes on after the failure: %v", err)
	}
	if text := out.String(); !strings.Contains(text, `belongs to the operator "admin", who has 2 permissions.`) ||
		!strings.HasSuffix(text, "\n2. The operator creates a customer\n") {
		t.Errorf("output:\n%s", text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
}
