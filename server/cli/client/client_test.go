package client_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/storage/access"
)

// connect returns the client for these flags.
func connect(t *testing.T, args ...string) (client.Client, error) {
	t.Helper()
	var made client.Client
	var failed error
	cmd := &cobra.Command{Use: "test", RunE: func(cmd *cobra.Command, _ []string) error {
		made, failed = client.Connect(cmd)
		return nil
	}}
	client.Flags(cmd)
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return made, failed
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

func TestConnect(t *testing.T) {
	t.Parallel()
	const key = "svc_AbCdEf0123456789"
	own, token, signed := access.Mint("acme").Reveal(), access.Mint(access.TokenPrefix).Reveal(), "eyJhbGciOiJFUzI1NiJ9.e30.c2ln"
	for _, tt := range []struct{ token, want string }{
		{key, "ApiKey " + key}, {"any-other-token-of-20", "Bearer any-other-token-of-20"}, {own, "ApiKey " + own}, {token, "Bearer " + token}, {signed, "Bearer " + signed},
	} {
		c, err := connect(t, "--url", "https://keys.example.com/", "--token", tt.token, "--organization", "acme")
		if err != nil || c.Base != "https://keys.example.com" || c.Authorization != tt.want || c.Organization != "acme" {
			t.Errorf("error %v, %+v", err, c)
		}
	}
	for args, want := range map[string]string{
		"--url https://a.example":                          "a URL needs a token; give --token, or set KEYHOOK_TOKEN",
		"--token t":                                        "a token needs a URL; give --url, or set KEYHOOK_URL",
		"--url a.example --token t":                        "the URL of a server must be such as https://keys.example.com",
		"--url https://a.example/?x=1 --token t":           "the URL of a server must be such as https://keys.example.com",
		"--url https://a.example/#x --token t":             "the URL of a server must be such as https://keys.example.com",
		"--url ftp://a.example --token t":                  "the URL of a server must be such as https://keys.example.com",
		"--url https://u:p@a.example --token t":            "the URL of a server must be such as https://keys.example.com",
		"--url https://a.example --token=t\u00e4":          "the token contains a space or another wrong character",
		"--storage.path /nosuch/keyhook.db --organization": "no server is running for /nosuch/keyhook.db",
	} {
		args := strings.Fields(args)
		if args[len(args)-1] == "--organization" {
			args = append(args, "acme")
		}
		c, err := connect(t, args...)
		if err == nil { // the local socket is asked at the first request
			_, err = c.Send(t.Context(), "GET", "/", nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, not %q", args, err, want)
		}
	}
}

func TestCall(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var sent struct{ Name string }
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("error %v, %v", err, r.Header)
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id": %q}`, r.Method+r.URL.Path+sent.Name+r.Header.Get("Authorization")+r.Header.Get("X-Organization-Id"))
	})
	c := client.Client{Base: url, Authorization: "Bearer t", Organization: "acme"}
	var made struct{ ID string }
	err := c.Call(t.Context(), "POST", "/x/", map[string]string{"name": "n"}, http.StatusCreated, &made)
	if err != nil || made.ID != "POST/x/nBearer tacme" {
		t.Errorf("error %v, id %q", err, made.ID)
	}
	err = c.Call(t.Context(), "POST", "/x/", map[string]string{}, http.StatusOK, nil)
	if err == nil || err.Error() != "POST /x/: the status is 201 instead of 200" {
		t.Errorf("error %v", err)
	}
	c.Base = serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"title": "Forbidden", "detail": "You lack x:y.", "code": "permission_denied", "request_id": "1"}`)
	})
	if err := c.Call(t.Context(), "DELETE", "/x/", nil, http.StatusForbidden, &made); err != nil {
		t.Errorf("error %v", err)
	}
	err = c.Call(t.Context(), "DELETE", "/x/", nil, http.StatusNoContent, nil)
	if err == nil || err.Error() != "DELETE /x/: Forbidden: You lack x:y. (permission_denied, request 1)" {
		t.Errorf("error %v", err)
	}
}

func TestSendRefusesALargeResponse(t *testing.T) {
	t.Parallel()
	part := make([]byte, client.MaxBody/16)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for range 16 {
			_, _ = w.Write(part)
		}
		fmt.Fprint(w, r.URL.Query().Get("more"))
	})
	c := client.Client{Base: url}
	if got, err := c.Send(t.Context(), "GET", "/", nil); err != nil || len(got.Body) != client.MaxBody {
		t.Errorf("error %v, %d bytes", err, len(got.Body))
	}
	if _, err := c.Send(t.Context(), "GET", "/?more=x", nil); err == nil || !strings.Contains(err.Error(), "larger than 16 MiB") {
		t.Errorf("error %v", err)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	const items = 450
	var limits []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		limits = append(limits, query.Get("limit"))
		if query.Get("search") != "a b" {
			t.Errorf("the query is %v", query)
		}
		first, _ := strconv.Atoi(query.Get("cursor"))
		limit, _ := strconv.Atoi(query.Get("limit"))
		if first == 200 && len(limits) == 2 { // a page without items, with more behind it
			fmt.Fprint(w, `{"data": [], "has_more": true, "next_cursor": "0200"}`)
			return
		}
		last := min(first+limit, items)
		page := client.Page{HasMore: last < items}
		for i := first; i < last; i++ {
			page.Data = append(page.Data, json.RawMessage(strconv.Itoa(i)))
		}
		if next := strconv.Itoa(last); page.HasMore {
			page.NextCursor = &next
		}
		_ = json.NewEncoder(w).Encode(page)
	})
	c := client.Client{Base: url}
	all, err := c.List(t.Context(), "/list/?search=a+b", "", 1000)
	if err != nil || len(all.Data) != items || all.HasMore || string(all.Data[items-1]) != "449" {
		t.Errorf("error %v, %d items, more %t", err, len(all.Data), all.HasMore)
	}
	some, err := c.List(t.Context(), "/list/?search=a+b", "10", 5)
	if err != nil || len(some.Data) != 5 || !some.HasMore || *some.NextCursor != "15" {
		t.Errorf("error %v, %+v", err, some)
	}
	if want := []string{"200", "200", "200", "200", "5"}; !slices.Equal(limits, want) {
		t.Errorf("limits %v, want %v", limits, want)
	}
}
