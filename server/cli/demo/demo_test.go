package demo_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/cli/demo"
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
	fmt.Fprintf(os.Stderr, "{\"msg\":\"ready\",\"url\":%q}\n", server.URL)
	select {} // until the demo kills it
}

// TestADemoThatFails is not parallel, because it sets a variable of the process.
func TestADemoThatFails(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var out strings.Builder
	cmd := demo.New()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(nil)
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	for _, want := range []string{
		"step 2 (The operator creates a customer): POST /api/v1/organizations/: the status is 418 instead of 201: no tea\n",
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
