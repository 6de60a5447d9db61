package cli_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/cli"
)

func TestTokenCreateFindsTheUser(t *testing.T) {
	t.Parallel()
	const users = `{"data": [
		{"id": "usr_1", "external_id": null, "email": "ada@example.com.au", "name": "ada"},
		{"id": "usr_2", "external_id": null, "email": "Ada@Example.com", "name": "twin"},
		{"id": "usr_3", "external_id": "ada@b.example", "email": null, "name": "twin"},
		{"id": "usr_4", "external_id": "x", "email": "ada@b.example", "name": "nobody else"}
	], "has_more": false, "next_cursor": null}`
	for meant, want := range map[string]string{
		"ada@example.COM": "usr_2",
		"ada@b.example":   `2 users are "ada@b.example"; choose an id from "keyhook users list"`,
		"nobody else":     "usr_4",
		"twin":            `2 users are "twin"; choose an id from "keyhook users list"`,
		"ad":              `0 users are "ad"; choose an id from "keyhook users list"`,
	} {
		t.Run(meant, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/api/v1/users/":
					_, _ = io.WriteString(w, users)
				case r.Method == http.MethodPost:
					_, _ = io.WriteString(w, `{"token": "kat_new"}`)
				default:
					_, _ = io.WriteString(w, `{"organization": {"id": "org_1"}}`)
				}
			})
			code, stdout, stderr := s.ask(t, aToken, "token create --quiet --user", meant)
			if query := strings.Fields(s.asked[0])[1]; !strings.Contains(query, "search="+strings.NewReplacer("@", "%40", " ", "+").Replace(meant)) {
				t.Errorf("it reads other users too: %s", query)
			}
			if strings.HasPrefix(want, "usr_") {
				last := s.asked[len(s.asked)-1]
				if code != cli.ExitOK || stdout != "kat_new\n" || !strings.HasPrefix(last, "POST /api/v1/users/"+want+"/access-tokens/ ") {
					t.Errorf("code %d, output %q, errors %q, asked %s", code, stdout, stderr, last)
				}
			} else if code != cli.ExitFailure || stderr != "keyhook: "+want+"\n" || len(s.asked) != 1 {
				t.Errorf("code %d, errors %q, %d requests", code, stderr, len(s.asked))
			}
		})
	}
}
