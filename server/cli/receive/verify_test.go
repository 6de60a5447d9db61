package receive_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/cli"
)

const (
	hookSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD6QEu+S1bE8g="
	hookStamp  = 1800000000
	hookBody   = `{"id":"evt_1","type":"order.paid","data":{"number":1001}}`
)

// signed returns the headers of a delivery as they are sent.
func signed(t *testing.T, secret, body string, stamp int64) http.Header {
	t.Helper()
	s, err := signature.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	at := strconv.FormatInt(stamp, 10)
	h := http.Header{}
	for name, value := range map[string]string{
		"X-Service-Signature": string(s.AppendHex(nil, stamp, []byte(body))), "X-Service-Timestamp": at,
		"X-Service-Event-Id": "evt_1", "X-Service-Event-Type": "order.paid", "X-Service-Attempt": "1",
		"webhook-id": "evt_1", "webhook-timestamp": at, "webhook-signature": string(s.AppendStandard(nil, "evt_1", stamp, []byte(body))),
	} {
		h.Set(name, value)
	}
	return h
}

// execute runs a command and returns its exit code and its output.
func execute(t *testing.T, args []string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Run(t.Context(), cli.New(cli.Options{In: strings.NewReader(""), Out: &out, Err: &errs}), args)
	return code, out.String(), errs.String()
}

// saved writes a file.
func saved(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "saved")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// savedRequest returns a request as it is on the wire, or with other line ends.
func savedRequest(t *testing.T, h http.Header, body, lineEnd string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("POST /hook HTTP/1.1" + lineEnd)
	for name, values := range h {
		b.WriteString(name + ": " + values[0] + lineEnd)
	}
	return b.String() + lineEnd + body
}

func TestVerify(t *testing.T) {
	t.Parallel()
	h := signed(t, hookSecret, hookBody, hookStamp)
	whole := savedRequest(t, h, hookBody, "\r\n")
	for _, tt := range []struct {
		name string
		args []string
		code int
		want []string // in the output
		not  []string
	}{
		{"a request as it came", []string{"--request", saved(t, whole)}, cli.ExitOK,
			[]string{"X-Service-Signature is right.\nwebhook-signature is right.\n"}, nil},
		{"a request saved with line feeds alone", []string{"--request", saved(t, savedRequest(t, h, hookBody, "\n"))}, cli.ExitOK,
			[]string{"X-Service-Signature is right."}, nil},
		{"headers and body by themselves", []string{
			"-H", "X-Service-Signature: " + h.Get("X-Service-Signature"), "-H", "x-service-timestamp:1800000000", "--body", saved(t, hookBody),
		}, cli.ExitOK, []string{"X-Service-Signature is right.\nwebhook-signature is not present.\n"}, nil},
		{"headers of Standard Webhooks alone, at the time when they were sent", []string{
			"-H", "webhook-signature: " + h.Get("webhook-signature"), "-H", "webhook-timestamp: 1800000000", "-H", "webhook-id: evt_1", "--body", saved(t, hookBody),
		}, cli.ExitOK, []string{"X-Service-Signature is not present.\nwebhook-signature is right.\n"}, nil},
		{"a body saved with a line feed", []string{"--request", saved(t, whole+"\n")}, cli.ExitFailure,
			[]string{"X-Service-Signature is WRONG: the signature does not match", "body_newline_added (proved)"}, nil},
		{"a body that was parsed and written again", []string{"--request", saved(t, whole), "--body", saved(t, `{"data": {"number": 1001}, "id": "evt_1", "type": "order.paid"}`)}, cli.ExitFailure,
			[]string{"WRONG"}, []string{"is right"}},
		{"another header in place of the request's", []string{"--request", saved(t, whole), "-H", "webhook-id: evt_2"}, cli.ExitFailure,
			[]string{"X-Service-Signature is right.", "webhook-signature is WRONG", "header_altered (probably)"}, nil},
		{"a signature in upper case", []string{"--request", saved(t, whole), "-H", "X-Service-Signature: " + strings.ToUpper(h.Get("X-Service-Signature"))}, cli.ExitFailure,
			[]string{"signature_upper_case (proved)"}, nil},
		{"a signature that is there twice", []string{"--request", saved(t, strings.Replace(whole, "\r\n\r\n", "\r\nwebhook-signature: "+h.Get("webhook-signature")+"\r\n\r\n", 1))}, cli.ExitFailure,
			[]string{"X-Service-Signature is right.", "webhook-signature is WRONG", "header_malformed (probably)"}, nil},
		{"no header of either scheme", []string{"-H", "Host: a.example", "--body", saved(t, hookBody)}, cli.ExitFailure,
			[]string{"X-Service-Signature is WRONG: a signature header is missing", "header_missing (probably)"}, nil},
		{"checked by a clock that is off", []string{"--request", saved(t, whole), "--at", "2027-01-15T08:10:00Z"}, cli.ExitFailure,
			[]string{"clock_ahead (proved)", "600 seconds before the receiver's clock", "--at sent"}, nil},
		{"checked by a clock in RFC 3339", []string{"--request", saved(t, whole), "--at", "2027-01-15T08:10:00Z", "--tolerance", "11m"}, cli.ExitOK,
			[]string{"X-Service-Signature is right."}, nil},
		{"checked by the clock of today", []string{"--request", saved(t, whole), "--at", "now"}, cli.ExitFailure, []string{"clock_"}, nil},
		{"the secret in quotes", []string{"--request", saved(t, whole), "--secret", "'" + hookSecret + "'"}, cli.ExitFailure,
			[]string{"secret_with_quotes (proved)"}, nil},
		{"as JSON", []string{"--request", saved(t, whole), "--json"}, cli.ExitOK, []string{`"valid": true`, `"scheme": "standard"`, `"body_bytes": 57`}, nil},
		{"as JSON where it is wrong", []string{"--request", saved(t, whole+"\n"), "--json"}, cli.ExitFailure,
			[]string{`"valid": false`, `"name": "body_newline_added"`, `"proved": true`}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := []string{"verify"}
			if joined := strings.Join(tt.args, " "); !strings.Contains(joined, "--secret") {
				args = append(args, "--secret-file", saved(t, hookSecret+"\n"))
			}
			if joined := strings.Join(tt.args, " "); !strings.Contains(joined, "--at") {
				args = append(args, "--at", "sent")
			}
			code, stdout, stderr := execute(t, append(args, tt.args...))
			if code != tt.code || (code == cli.ExitOK) != (stderr == "") || strings.Count(stderr, "\n") > 1 {
				t.Errorf("code %d, errors %q", code, stderr)
			}
			for _, want := range tt.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q in:\n%s", want, stdout)
				}
			}
			for _, not := range append(tt.not, hookSecret) {
				if strings.Contains(stdout+stderr, not) {
					t.Errorf("%q in:\n%s", not, stdout)
				}
			}
		})
	}
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	body, secret := saved(t, hookBody), saved(t, hookSecret)
	for _, tt := range []struct{ name, args, stderr string }{
		{"no secret", "--request " + body, "there is no secret; give --secret-file, or set KEYHOOK_WEBHOOK_SECRET"},
		{"two secrets", "--secret a --body " + body + " -H a:b --secret-file " + secret, "exclude each other"},
		{"a secret file that is empty", "--secret-file " + saved(t, "\n"), "is empty"},
		{"a secret file that is not there, without its path", "--secret-file /nowhere/none", "cannot read the file: no such file or directory;"},
		{"no delivery", "--secret-file " + secret, "there is no delivery"},
		{"no headers", "--body " + body + " --secret-file " + secret, "there are no headers"},
		{"the standard input twice", "--request - --body - --secret-file " + secret, "cannot both read the standard input"},
		{"a request without an end of its headers", "--request " + body + " --secret-file " + secret, "has no empty line between headers and body"},
		{"a header that is none", "--body " + body + " -H nonsense --secret-file " + secret, `line 1 is not a header, such as "Name: value": "nonsense"`},
		{"a clock that is none", "--at yesterday -H a:b --body " + body + " --secret-file " + secret, `--at is "yesterday", but must be`},
		{"no tolerance", "--tolerance 0s -H a:b --body " + body + " --secret-file " + secret, "--tolerance must be more than 0"},
		{"an argument", "now", `"now" is one argument too many`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := execute(t, append([]string{"verify"}, strings.Fields(tt.args)...))
			if code != cli.ExitUsage || stdout != "" || !strings.Contains(stderr, tt.stderr) || !strings.HasSuffix(stderr, " (see keyhook verify --help)\n") {
				t.Errorf("code %d, output %q, errors %q", code, stdout, stderr)
			}
		})
	}
}

// Not parallel: it changes the environment.
func TestVerifyTakesTheSecretFromTheEnvironment(t *testing.T) {
	t.Setenv("KEYHOOK_WEBHOOK_SECRET", hookSecret)
	whole := savedRequest(t, signed(t, hookSecret, hookBody, hookStamp), hookBody, "\r\n")
	if code, stdout, stderr := execute(t, []string{"verify", "--request", saved(t, whole), "--at", "sent"}); code != cli.ExitOK {
		t.Errorf("code %d, output %q, errors %q", code, stdout, stderr)
	}
}
