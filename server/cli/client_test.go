package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/cli"
)

// stub is a server with a fixed response, which records its requests.
type stub struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // "METHOD path?query authorization body"
}

func newStub(t *testing.T, answer http.HandlerFunc) *stub {
	t.Helper()
	s := &stub{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.asked = append(s.asked, strings.TrimSpace(fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("Authorization"), " ", string(body))))
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// says returns a handler with one response for every request.
func says(status int, mediaType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const (
	jsonType = "application/json"
	aToken   = "kat_000000000000000000000000000000000000"
	anID     = "key_01h455vb4pex5vsknk084sn02q"
)

// ask runs a command against the stub.
func (s *stub) ask(t *testing.T, token, command string, more ...string) (code int, stdout, stderr string) {
	t.Helper()
	args := append(strings.Fields(command), more...)
	return run(t, append(args, "--url", s.URL+"/", "--token", token))
}

func TestRequests(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, token, command string
		more                 []string
		want                 string // without the host
	}{
		{"an API key uses the scheme ApiKey", "svc_000000000000000000000000000000000000", "keys get " + anID, nil,
			"GET /api/v1/api-keys/" + anID + "/ ApiKey svc_000000000000000000000000000000000000"},
		{"an API key with another prefix does too", "acme_000000000000000000000000000000000000", "keys get " + anID, nil,
			"GET /api/v1/api-keys/" + anID + "/ ApiKey acme_000000000000000000000000000000000000"},
		{"any other token uses the scheme Bearer", "my-own-token-0123456789", "keys get " + anID, nil,
			"GET /api/v1/api-keys/" + anID + "/ Bearer my-own-token-0123456789"},
		{"rotate sends the grace in seconds", aToken, "keys rotate " + anID + " --grace 1h", nil,
			"POST /api/v1/api-keys/" + anID + "/rotate/ Bearer " + aToken + ` {"grace_seconds":3600}`},
		{"rotate without a grace sends no body", aToken, "keys rotate " + anID, nil,
			"POST /api/v1/api-keys/" + anID + "/rotate/ Bearer " + aToken},
		{"explain leaves a path of another API as it is", aToken, "keys explain " + anID + " GET /orders", nil,
			"POST /api/v1/auth/explain/ Bearer " + aToken + ` {"key":"` + anID + `","method":"GET","path":"/orders"}`},
		{"explain sends the path in full and the method in capitals", aToken, "keys explain " + anID + " get whoami --permission a:b", nil,
			"POST /api/v1/auth/explain/ Bearer " + aToken + ` {"key":"` + anID + `","method":"GET","path":"/api/v1/whoami","permission":"a:b"}`},
		{"a scope is one string, from one flag or several", aToken, "keys create --name x", []string{"--scope", "a:b c:d", "--scope", "e:f,g:h"},
			"POST /api/v1/api-keys/ Bearer " + aToken + ` {"name":"x","scope":"a:b c:d e:f g:h"}`},
		{"conditions come from several flags", aToken, "subscriptions preview-filter", []string{"--filter", "amount gte 100", "--filter", `customer.country in ["CH", "DE"]`},
			"POST /api/v1/webhooks/filters/preview/ Bearer " + aToken +
				` {"filter":[{"op":"gte","path":"amount","value":100},{"op":"in","path":"customer.country","value":["CH","DE"]}]}`},
		{"filters and the length of a page go into the query", aToken, "keys list --status all --limit 7", nil,
			"GET /api/v1/api-keys/?limit=7&status=all Bearer " + aToken},
		{"several statuses, from one flag or several, are one parameter", aToken, "subscriptions list --status failing,healthy --status disabled", nil,
			"GET /api/v1/webhooks/subscriptions/?limit=50&status=failing%2Chealthy%2Cdisabled Bearer " + aToken},
		{"the list of events leaves out audit events", aToken, "events list", nil, "GET /api/v1/events/?audit_events=false&limit=50 Bearer " + aToken},
		{"with --audit, it shows them", aToken, "events list --audit", nil, "GET /api/v1/events/?audit_events=true&limit=50 Bearer " + aToken},
		{"and with a type, which may be one of theirs", aToken, "events list --type api_key_created", nil,
			"GET /api/v1/events/?limit=50&type=api_key_created Bearer " + aToken},
		{"a list of all organizations asks for them in the query", aToken, "events list --organization all --type order.*", nil,
			"GET /api/v1/events/?limit=50&organization=all&type=order.%2A Bearer " + aToken},
		{"a prefix of a key is sent as lists show it", aToken, "keys list --prefix svc_AbCdEf", nil,
			"GET /api/v1/api-keys/?limit=50&prefix=svc_AbCdEf Bearer " + aToken},
		{"an empty external id is null", aToken, "organizations update org_01h455vb4pex5vsknk084sn02q --external-id", []string{""},
			"PATCH /api/v1/organizations/org_01h455vb4pex5vsknk084sn02q/ Bearer " + aToken + ` {"external_id":null}`},
		{"explain takes an external id", aToken, "keys explain my-key GET /", nil, "POST /api/v1/auth/explain/ Bearer " + aToken + ` {"key":"my-key","method":"GET","path":"/"}`},
		{"explain takes an external id that looks like a prefix", aToken, "keys explain svc_AbCdEf GET whoami", nil,
			"POST /api/v1/auth/explain/ Bearer " + aToken + ` {"key":"svc_AbCdEf","method":"GET","path":"/api/v1/whoami"}`},
		{"an external id names a subscription in the query and a key in the path", aToken, "events explain evt_01h455vb4pex5vsknk084sn02q my-sub", nil,
			"GET /api/v1/events/evt_01h455vb4pex5vsknk084sn02q/explain/?limit=50&subscription_id=my-sub Bearer " + aToken},
		{"a key has an external id", aToken, "keys create --name x --scope a:b --external-id backend-17", nil,
			"POST /api/v1/api-keys/ Bearer " + aToken + ` {"external_id":"backend-17","name":"x","scope":"a:b"}`},
		{"a key is named by its external id", aToken, "keys get backend-17", nil, "GET /api/v1/api-keys/backend-17/ Bearer " + aToken},
		{"the slash of an external id is escaped", aToken, "keys get shop/42?", nil, "GET /api/v1/api-keys/shop%2F42%3F/ Bearer " + aToken},
		{"unlimited is null", aToken, "plans update growth --api-rate-limit-per-minute unlimited --webhooks=false", nil,
			"PATCH /api/v1/plans/growth/ Bearer " + aToken + ` {"api_rate_limit_per_minute":null,"webhooks":false}`},
		{"the colons of a permission are not escaped", aToken, "permissions get orders:read", nil,
			"GET /api/v1/permissions/orders:read/ Bearer " + aToken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, says(200, jsonType, `{"data":[],"has_more":false,"next_cursor":null}`))
			_, _, _ = s.ask(t, tt.token, tt.command, tt.more...)
			if d := cmp.Diff([]string{tt.want}, s.asked); d != "" {
				t.Errorf("asked (-want +got):\n%s", d)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	s := newStub(t, says(200, jsonType, `{"allowed":false,"code":"permission_denied","checks":[
		{"check":"key","value":"svc_abcdef…","verdict":"passed","detail":"known"},
		{"check":"permission","value":"events:write","verdict":"failed","detail":"not in the scope, which is a longer sentence than a column of a list may have"}]}`))
	code, stdout, stderr := s.ask(t, aToken, "keys explain "+anID+" POST events")
	want := `allowed  false
code     permission_denied

CHECK       VERDICT  VALUE         DETAIL
key         passed   svc_abcdef…   known
permission  failed   events:write  not in the scope, which is a longer sentence than a column of a list may have
`
	if d := cmp.Diff(want, stdout); d != "" {
		t.Errorf("output (-want +got):\n%s", d)
	}
	if code != cli.ExitFailure || stderr != "keyhook: the request would be refused: permission_denied\n" {
		t.Errorf("code %d, errors %q", code, stderr)
	}
}

// TestRefusalsOfKeys has the exit code 1 in every form of the output, because scripts look at it.
func TestRefusalsOfKeys(t *testing.T) {
	t.Parallel()
	for command, answer := range map[string]string{
		"keys explain " + anID + " POST events":      `{"allowed":%t,"code":"%s","checks":[]}`,
		"keys verify svc_" + strings.Repeat("0", 36): `{"valid":%t,"code":"%s","key_id":null}`,
	} {
		for _, form := range []string{"", "--json", "--quiet"} {
			for isAllowed, code := range map[bool]string{true: "valid", false: "key_revoked"} {
				text := fmt.Sprintf(answer, isAllowed, code)
				s := newStub(t, says(200, jsonType, text))
				got, stdout, stderr := s.ask(t, aToken, command+" "+form)
				want := map[string]string{"--json": text + "\n", "--quiet": code + "\n", "": stdout}[form]
				if got != map[bool]int{true: cli.ExitOK, false: cli.ExitFailure}[isAllowed] || stdout != want || (stderr == "") != isAllowed {
					t.Errorf("%s %s: code %d, output %q, errors %q", command, form, got, stdout, stderr)
				}
			}
		}
	}
}

func TestListOfAllOrganizations(t *testing.T) {
	t.Parallel()
	s := newStub(t, says(200, jsonType, `{"data":[{"id":"evt_1","type":"a","organization_id":"org_1"}],"has_more":false,"next_cursor":null}`))
	code, stdout, _ := s.ask(t, aToken, "events list --organization all")
	want := "ID     TIMESTAMP  TYPE  DELIVERIES  ORGANIZATION ID\nevt_1  -          a     -           org_1\n"
	if code != cli.ExitOK || stdout != want {
		t.Errorf("code %d, output\n%s", code, stdout)
	}
	for _, command := range []string{"users list --organization all", "events list --organization ALL", "events get evt_01h455vb4pex5vsknk084sn02q --organization all"} {
		s := newStub(t, says(200, jsonType, "{}"))
		if code, _, stderr := s.ask(t, aToken, command); code != cli.ExitUsage || len(s.asked) != 0 || !strings.Contains(stderr, "--organization") {
			t.Errorf("%s: code %d, %d requests, errors %q", command, code, len(s.asked), stderr)
		}
	}
}

func TestSentAttempt(t *testing.T) {
	t.Parallel()
	s := newStub(t, says(200, jsonType, `{"id":"att_1","outcome":"failed","request":{"method":"POST","url":"https://example.com/hook",`+
		`"headers":{"Webhook-Id":"evt_1","Webhook-Signature":"v1,***"},"body":"{\"id\":\"evt_1\"}"}}`))
	code, stdout, stderr := s.ask(t, aToken, "deliveries get sub_01h455vb4pex5vsknk084sn02q att_01h455vb4pex5vsknk084sn02q")
	want := `id                                 att_1
outcome                            failed
request.method                     POST
request.url                        https://example.com/hook
request.headers.Webhook-Id         evt_1
request.headers.Webhook-Signature  v1,***
request.body                       {"id":"evt_1"}
`
	if d := cmp.Diff(want, stdout); d != "" || code != cli.ExitOK {
		t.Errorf("code %d, errors %q, output (-want +got):\n%s", code, stderr, d)
	}
}

func TestSecretsOutOfPlace(t *testing.T) {
	t.Parallel()
	const raw = "svc_abcdefghijklmnopqrstuvwxyz0123456789"
	for _, command := range []string{
		"keys get " + raw, "keys delete " + aToken, "keys get https://keys.example.com/" + raw, "api GET https://x/" + raw, "keys create x " + raw,
		"permissions get " + aToken, "keys list --organization " + raw,
	} {
		s := newStub(t, says(200, jsonType, "{}"))
		code, stdout, stderr := s.ask(t, aToken, command)
		if code != cli.ExitUsage || len(s.asked) != 0 || stdout != "" || strings.Contains(stderr, raw[10:]) || strings.Contains(stderr, aToken) {
			t.Errorf("%s: code %d, %d requests, output %q, errors %q", command, code, len(s.asked), stdout, stderr)
		}
	}
}

func TestSecretsOfAnAnswer(t *testing.T) {
	t.Parallel()
	s := newStub(t, says(201, jsonType, `{"id":"`+anID+`","name":"x","key":"svc_secret"}`))
	for _, tt := range []struct{ flag, stdout, stderr string }{
		{"", "id    " + anID + "\nname  x\nkey   svc_secret\n", "\nStore the key now. It is not shown again.\n"},
		{"--quiet", "svc_secret\n", ""},
		{"--json", `{"id":"` + anID + `","name":"x","key":"svc_secret"}` + "\n", ""},
	} {
		t.Run("are shown with a warning, alone, or as they are: "+tt.flag, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := s.ask(t, aToken, "keys rotate "+anID+" "+tt.flag)
			if code != cli.ExitOK || stdout != tt.stdout || stderr != tt.stderr {
				t.Errorf("code %d, output %q, errors %q", code, stdout, stderr)
			}
		})
	}
}

func TestAPortalLinkIsShownOnce(t *testing.T) {
	t.Parallel()
	const url, until = "https://keys.example.com/console/#link=ksl_secret", "2030-01-31T12:00:00.000Z"
	s := newStub(t, says(201, jsonType, `{"url":"`+url+`","expires_at":"`+until+`"}`))
	for flag, want := range map[string][2]string{
		"":        {"url         " + url + "\nexpires_at  " + until + "\n", "\nStore the url now. It is not shown again.\n"},
		"--quiet": {url + "\n", ""},
	} {
		if code, stdout, stderr := s.ask(t, aToken, "organizations portal-link acme-17 "+flag); code != cli.ExitOK || stdout != want[0] || stderr != want[1] {
			t.Errorf("%q: code %d, output %q, errors %q", flag, code, stdout, stderr)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	const problemType = "application/problem+json"
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		stderr string
	}{
		{"a problem is printed with its fields and the id of the request", says(422, problemType,
			`{"title":"Unprocessable Entity","detail":"Two are wrong.","code":"validation_failed","request_id":"R1","errors":[
				{"field":"name","message":"Too long."},{"field":"scope","message":"Unknown."}]}`),
			"keyhook: Unprocessable Entity: Two are wrong. (validation_failed, request R1)\n  name: Too long.\n  scope: Unknown.\n"},
		{"a problem with one field is printed on one line", says(422, problemType,
			`{"title":"Unprocessable Entity","detail":"Unknown.","code":"unknown_permission","request_id":"R1","errors":[{"field":"scope","message":"Unknown."}]}`),
			"keyhook: Unprocessable Entity: scope: Unknown. (unknown_permission, request R1)\n"},
		{"control characters are escaped", says(403, problemType,
			`{"title":"Forbidden","detail":"\u001b]0;owned\u0007 \u202e","code":"x","request_id":"R1"}`),
			"keyhook: Forbidden: \\x1b]0;owned\\a \\u202e (x, request R1)\n"},
		{"the page of another server is not printed", says(502, "text/html", "<html>secret</html>"),
			"keyhook: the response (502 Bad Gateway) does not come from Keyhook; check the URL of the server\n"},
		{"a success of another server is not printed either", says(200, "text/html", "<html>"),
			"keyhook: the response is not a JSON object, so it does not come from Keyhook; check the URL of the server\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, tt.answer)
			code, stdout, stderr := s.ask(t, aToken, "keys get "+anID)
			if code != cli.ExitFailure || stdout != "" || stderr != tt.stderr {
				t.Errorf("code %d, output %q, errors\n%q, want\n%q", code, stdout, stderr, tt.stderr)
			}
		})
	}

	t.Run("a redirect is not followed, because the token would go there", func(t *testing.T) {
		t.Parallel()
		other := newStub(t, says(200, jsonType, "{}"))
		s := newStub(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusMovedPermanently)
		})
		code, _, stderr := s.ask(t, aToken, "keys get "+anID)
		const want = "keyhook: the response (301 Moved Permanently) does not come from Keyhook; check the URL of the server\n"
		if code != cli.ExitFailure || stderr != want || len(other.asked) > 0 {
			t.Errorf("code %d, errors %q, asked elsewhere %q", code, stderr, other.asked)
		}
	})

	t.Run("an unknown certificate is refused and gets no token", func(t *testing.T) {
		t.Parallel()
		asked := false
		s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
		s.Config.ErrorLog = nil
		t.Cleanup(s.Close)
		code, _, stderr := run(t, []string{"keys", "get", anID, "--url", s.URL, "--token", aToken})
		if code != cli.ExitFailure || asked || !strings.Contains(stderr, "certificate signed by unknown authority") || strings.Contains(stderr, aToken) {
			t.Errorf("code %d, asked %t, errors %q", code, asked, stderr)
		}
	})

	t.Run("api prints the body of a failure", func(t *testing.T) {
		t.Parallel()
		s := newStub(t, says(404, problemType, `{"code":"not_found"}`))
		code, stdout, stderr := s.ask(t, aToken, "api delete /nothing/here/")
		if code != cli.ExitFailure || stdout != "{\"code\":\"not_found\"}\n" || stderr != "keyhook: 404 Not Found\n" {
			t.Errorf("code %d, output %q, errors %q", code, stdout, stderr)
		}
		if d := cmp.Diff([]string{"DELETE /api/v1/nothing/here/ Bearer " + aToken}, s.asked); d != "" {
			t.Errorf("asked (-want +got):\n%s", d)
		}
	})
}
