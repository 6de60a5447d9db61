package diagnosis_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
)

const (
	secret    = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD6QEu+S1bE8g="
	oldSecret = "whsec_plJ3nmyCDGBKInavdOK15jsl6QEu+S1bE8gC2FVsBQI="
	stamp     = "1800000000"
	id        = "evt_01jd3rx1"
	body      = `{"id":"evt_01jd3rx1","type":"order.paid","timestamp":"2027-01-15T08:00:00.000Z","organization_id":"org_1",` +
		`"data":{"zip":"1010","name":"Zoë <z@a.example> & co","path":"a/b","total":19.90,"emoji":"😀"}}`
)

var now = time.Unix(1800000010, 0)

// mac is HMAC-SHA256, written here again.
func mac(key, message string) []byte {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(message))
	return m.Sum(nil)
}

// decoded is the key of Standard Webhooks.
func decoded(secret string) string {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	return string(key)
}

func inHex(sum []byte) string      { return hex.EncodeToString(sum) }
func inStandard(sum []byte) string { return "v1," + base64.StdEncoding.EncodeToString(sum) }

func hexOf(secret, body string) string { return inHex(mac(secret, stamp+"."+body)) }
func standardOf(secret, body string) string {
	return inStandard(mac(decoded(secret), id+"."+stamp+"."+body))
}

// genuine is a delivery as it should be, of the given body.
func genuine(body string) diagnosis.Delivery {
	h := http.Header{}
	h.Set("X-Service-Signature", hexOf(secret, body))
	h.Set("X-Service-Timestamp", stamp)
	h.Set("X-Service-Event-Id", id)
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", stamp)
	h.Set("webhook-signature", standardOf(secret, body))
	return diagnosis.Delivery{Header: h, Body: []byte(body), Secret: secret, Now: now}
}

// names returns the names of mistakes.
func names(mistakes []diagnosis.Mistake) []string {
	var all []string
	for _, m := range mistakes {
		all = append(all, m.Name)
	}
	return all
}

// check diagnoses a delivery, and compares the mistake in each scheme; empty means a valid signature.
func check(t *testing.T, d diagnosis.Delivery, hex, standard string) {
	t.Helper()
	results := diagnosis.Check(d)
	for i, want := range []string{hex, standard} {
		v := results[i]
		if diff := cmp.Diff(strings.Fields(want), names(v.Mistakes), cmp.Transformer("empty", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
			t.Errorf("%s, error %v: %s%+v", v.Scheme, v.Err, diff, v.Mistakes)
		}
		if (v.Err == nil) != (want == "") {
			t.Errorf("%s: error %v", v.Scheme, v.Err)
		}
		for _, m := range v.Mistakes {
			if m.Name == "" || !strings.HasSuffix(m.What, ".") || !strings.HasSuffix(m.Advice, ".") || strings.Contains(m.What+m.Advice, secret[6:]) {
				t.Errorf("%s says badly: %+v", v.Scheme, m)
			}
		}
	}
}

func TestWhatIsRight(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"an event": body, "no body": "", "a body of any bytes": "\x00\xff\r\n", "a large one": strings.Repeat("x", 256<<10)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, genuine(body), "", "")
		})
	}
	t.Run("by the previous secret", func(t *testing.T) {
		t.Parallel()
		d := genuine(body)
		d.Secret = oldSecret
		d.Header.Set("X-Service-Signature-Previous", hexOf(oldSecret, body))
		d.Header.Set("webhook-signature", standardOf(secret, body)+" "+standardOf(oldSecret, body))
		check(t, d, "", "")
		d.Secret = secret
		check(t, d, "", "")
	})
}

// A proxy removed a header that the signature does not need, and the secret is wrong.
func TestAWrongSecretWithoutTheId(t *testing.T) {
	t.Parallel()
	d := genuine(body)
	d.Header.Del("X-Service-Event-Id")
	check(t, d, "", "")
	d.Secret = oldSecret
	check(t, d, "secret_wrong", "secret_wrong")
}

// What happens to a body on its way: the signatures are right for another one.
func TestABodyThatWasChanged(t *testing.T) {
	t.Parallel()
	const small = `{"id":"evt_01jd3rx1","data":{"a":1,"b":"x"}}`
	const sorted = `{"data":{"a":1,"b":"x"},"id":"evt_01jd3rx1","organization_id":"org_1","timestamp":"2027-01-15T08:00:00.000Z","type":"a"}`
	const inOrder = `{"id":"evt_01jd3rx1","type":"a","timestamp":"2027-01-15T08:00:00.000Z","organization_id":"org_1","data":{"a":1,"b":"x"}}`
	for _, c := range []struct {
		name         string
		signed, have string
		want         string
	}{
		{"a line feed added", body, body + "\n", "body_newline_added"},
		{"CR LF added", body, body + "\r\n", "body_newline_added"},
		{"white space added", body, "  " + body + " \n", "body_newline_added"},
		{"a line feed removed", body + "\n", body, "body_newline_removed"},
		{"indented by two", small, "{\n  \"id\": \"evt_01jd3rx1\",\n  \"data\": {\n    \"a\": 1,\n    \"b\": \"x\"\n  }\n}", "body_reserialized"},
		{"written with spaces", small, `{"id": "evt_01jd3rx1", "data": {"a": 1, "b": "x"}}`, "body_reserialized"},
		{"its spaces taken out", `{"id": "evt_01jd3rx1", "data": {"a": 1, "b": "x"}}`, small, "body_reserialized"},
		{"its keys sorted", inOrder, sorted, "body_reserialized"},
		{"its keys sorted, and it is a test", strings.Replace(inOrder, `"data"`, `"test":true,"data"`, 1), strings.Replace(sorted, `"timestamp"`, `"test":true,"timestamp"`, 1), "body_reserialized"},
		{"its keys sorted, and with spaces", inOrder, strings.NewReplacer(",", ", ", `":`, `": `).Replace(sorted), "body_reserialized"},
		{"escaped beyond ASCII", body, strings.NewReplacer("ë", `\u00eb`, "😀", `\ud83d\ude00`).Replace(body), "body_reserialized"},
		{"escaped for HTML", body, strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(body), "body_reserialized"},
		{"its slashes escaped", body, strings.ReplaceAll(body, "/", `\/`), "body_reserialized"},
		{"its escapes undone", strings.NewReplacer("ë", `\u00eb`, "😀", `\ud83d\ude00`).Replace(body), body, "body_reserialized"},
		{"escapes beside what looks like one", `{"a":"\\u00ebë\n\""}`, `{"a":"\\u00eb\u00eb\n\""}`, "body_reserialized"},
		{"its keys sorted to the depth, where nobody can tell how they were", inOrder, strings.ReplaceAll(sorted, `"a":1,"b":"x"`, `"b":"x","a":1`), "body_reserialized"},
		{"indented, with a line feed at its end", small, "{\n  \"id\": \"evt_01jd3rx1\",\n  \"data\": {\n    \"a\": 1,\n    \"b\": \"x\"\n  }\n}\n", "body_reserialized"},
		{"lost", body, "", "body_empty"},
		{"cut off", body, body[:40], "body_not_json"},
		{"taken from another event", body, strings.ReplaceAll(body, id, "evt_other"), "body_of_another_event"},
		{"changed in a number", body, strings.ReplaceAll(body, "19.90", "19.9"), "secret_wrong"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := genuine(c.signed)
			d.Body = []byte(c.have)
			check(t, d, c.want, c.want)
		})
	}
}

func TestASecretThatIsAnother(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, secret, hex, standard string
	}{
		{"the one before the rotation", oldSecret, "secret_wrong", "secret_wrong"},
		{"with a line feed, which base64 passes over", secret + "\n", "secret_with_space", ""},
		{"with spaces", " " + secret + " ", "secret_with_space", "secret_with_space"},
		{"in double quotes", `"` + secret + `"`, "secret_with_quotes", "secret_with_quotes"},
		{"in single quotes and with a line feed", "'" + secret + "'\n", "secret_with_quotes", "secret_with_quotes"},
		{"without its prefix", strings.TrimPrefix(secret, "whsec_"), "secret_without_prefix", ""},
		{"without its padding", strings.TrimRight(secret, "="), "secret_form", "secret_form"},
		{"with spaces for plus signs", strings.ReplaceAll(secret, "+", " "), "secret_form", "secret_form"},
		{"an API key", "svc_0123456789abcdef0123456789abcdef0123", "secret_form", "secret_form"},
		{"shortened", "whsec_C2FV…", "secret_form", "secret_form"},
		{"some other text", "hunter2", "secret_form", "secret_form"},
		{"none", "", "secret_form", "secret_form"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := genuine(body)
			d.Secret = c.secret
			check(t, d, c.hex, c.standard)
		})
	}
}

// In an overlap, a program that changes signatures changes both.
func TestBothSignaturesOfAnOverlap(t *testing.T) {
	t.Parallel()
	d := genuine(body)
	d.Header.Set("X-Service-Signature", strings.ToUpper(hexOf(secret, body)))
	d.Header.Set("X-Service-Signature-Previous", strings.ToUpper(hexOf(oldSecret, body)))
	check(t, d, "signature_upper_case", "")
}

func TestClocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		now  time.Time
		want string
		says string
	}{
		{"a clock that is ahead, or a delivery that is old", time.Unix(1800000437, 0), "clock_ahead", "437 seconds before the receiver's clock"},
		{"a clock that is behind", time.Unix(1799999000, 0), "clock_behind", "1000 seconds after the receiver's clock"},
		{"a clock that is off, but not too much", time.Unix(1800000299, 0), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := genuine(body)
			d.Now = c.now
			check(t, d, c.want, c.want)
			for _, v := range diagnosis.Check(d) {
				if c.says != "" && !strings.Contains(v.Mistakes[0].What, c.says) {
					t.Errorf("it says %q", v.Mistakes[0].What)
				}
			}
		})
	}
}
