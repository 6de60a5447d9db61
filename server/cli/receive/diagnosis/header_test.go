package diagnosis_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
)

// What happens to the headers on their way.
func TestHeadersThatWereChanged(t *testing.T) {
	t.Parallel()
	right, standard := hexOf(secret, body), standardOf(secret, body)
	raw := strings.TrimPrefix(standard, "v1,")
	for _, c := range []struct {
		name, header, value string
		hex, standard       string
	}{
		{"upper case", "X-Service-Signature", strings.ToUpper(right), "signature_upper_case", ""},
		{"a label of another sender", "X-Service-Signature", "sha256=" + right, "signature_label", ""},
		{"a version", "X-Service-Signature", "v1," + right, "signature_label", ""},
		{"base64 in place of hex", "X-Service-Signature", strings.TrimPrefix(inStandard(mac(secret, stamp+"."+body)), "v1,"), "signature_in_base64", ""},
		{"joined with another", "X-Service-Signature", strings.Repeat("0", 64) + ", " + right, "header_malformed", ""},
		{"in milliseconds", "X-Service-Timestamp", stamp + "000", "header_malformed", ""},
		{"another timestamp", "X-Service-Timestamp", "1800000007", "header_altered", ""},
		{"no timestamp", "X-Service-Timestamp", "", "header_missing", ""},
		{"no signature", "X-Service-Signature", "", "header_missing", ""},
		{"a signature by a stranger", "X-Service-Signature", strings.Repeat("ab", 32), "header_altered", ""},

		{"no version", "webhook-signature", raw, "", "signature_label"},
		{"a label", "webhook-signature", "sha256=" + raw, "", "signature_label"},
		{"hex in place of base64", "webhook-signature", "v1," + inHex(mac(decoded(secret), id+"."+stamp+"."+body)), "", "signature_in_hex"},
		{"another id", "webhook-id", "evt_9", "", "header_altered"},
		{"no signature, standard", "webhook-signature", "", "", "header_missing"},
		{"an asymmetric one", "webhook-signature", "v1a,AAAA", "", "header_malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := genuine(body)
			d.Header.Set(c.header, c.value)
			check(t, d, c.hex, c.standard)
		})
	}

	t.Run("that are there twice", func(t *testing.T) {
		t.Parallel()
		d := genuine(body)
		d.Header.Add("X-Service-Signature", right)
		d.Header.Add("webhook-signature", standard)
		check(t, d, "header_malformed", "header_malformed")
	})
	t.Run("beside a right signature", func(t *testing.T) {
		t.Parallel()
		d := genuine(body)
		d.Header.Set("X-Service-Signature-Previous", "none")
		check(t, d, "header_malformed", "")
	})
	t.Run("under another prefix", func(t *testing.T) {
		t.Parallel()
		d := genuine(body)
		for _, name := range []string{"Signature", "Timestamp"} {
			d.Header.Set("X-Acme-"+name, d.Header.Get("X-Service-"+name))
			d.Header.Del("X-Service-" + name)
		}
		check(t, d, "header_prefix", "")
		d.Header.Del("webhook-id")
		d.Header.Set("X-Service-Timestamp", stamp)
		check(t, d, "header_prefix", "header_missing")
		d.HeaderPrefix = "X-Acme"
		check(t, d, "", "header_missing")
	})
	t.Run("as CGI names them", func(t *testing.T) {
		t.Parallel()
		d := genuine(body)
		d.Header["HTTP_X_SERVICE_SIGNATURE"] = d.Header["X-Service-Signature"]
		d.Header.Del("X-Service-Signature")
		check(t, d, "header_renamed", "")
	})
}

// What the code of a receiver computes in place of the signature.
// pythonBody is the body as json.dumps writes it.
const pythonBody = `{"id": "evt_01jd3rx1", "type": "order.paid", "timestamp": "2027-01-15T08:00:00.000Z", "organization_id": "org_1", ` +
	`"data": {"zip": "1010", "name": "Zo\u00eb <z@a.example> & co", "path": "a/b", "total": 19.90, "emoji": "\ud83d\ude00"}}`

func TestMistakes(t *testing.T) {
	t.Parallel()
	message := stamp + "." + body
	standardMessage := id + "." + message
	for _, c := range []struct {
		name     string
		computed string
		scheme   string
		want     string
	}{
		{"with a label", "sha256=" + hexOf(secret, body), "hex", "signature_label"},
		{"in upper case", strings.ToUpper(hexOf(secret, body)), "hex", "signature_upper_case"},
		{"in base64", base64.StdEncoding.EncodeToString(mac(secret, message)), "hex", "signature_in_base64"},
		{"in hex, standard", inHex(mac(decoded(secret), standardMessage)), "standard", "signature_in_hex"},
		{"the body read before", inHex(mac(secret, stamp+".")), "hex", "body_empty"},
		{"the body with a line feed", hexOf(secret, body+"\n"), "hex", "body_newline_removed"},
		{"the body as Python writes it", hexOf(secret, pythonBody), "hex", "body_reserialized"},
		{"the body as Python writes it, standard", standardOf(secret, pythonBody), "standard", "body_reserialized"},
		{"the prefix left out", inHex(mac(strings.TrimPrefix(secret, "whsec_"), message)), "hex", "secret_without_prefix"},
		{"the secret decoded", inHex(mac(decoded(secret), message)), "hex", "secret_decoded"},
		{"the secret not decoded", inStandard(mac(secret, standardMessage)), "standard", "secret_not_decoded"},
		{"the secret not decoded, without its prefix", inStandard(mac(strings.TrimPrefix(secret, "whsec_"), standardMessage)), "standard", "secret_not_decoded"},
		{"the secret with a line feed", inHex(mac(secret+"\n", message)), "hex", "secret_with_space"},
		{"the secret in quotes", inHex(mac(`"`+secret+`"`, message)), "hex", "secret_with_quotes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mistakes := mistakesOf(c.scheme, c.computed)
			if diff := cmp.Diff(c.want, strings.Join(names(mistakes), " ")); diff != "" {
				t.Errorf("%s%+v", diff, mistakes)
			}
			for _, m := range mistakes {
				if !m.Proved {
					t.Errorf("%s is not proved", m.Name)
				}
			}
		})
	}
	t.Run("nothing proves a mistake of other text, or two at once", func(t *testing.T) {
		t.Parallel()
		for _, computed := range []string{"", " ", ",", "v1,", "v1", "zz", "abc", strings.Repeat("0", 64), "\x00", "%zz", strings.Repeat("a ", 5000), strings.ToUpper(hexOf(oldSecret, body+"\n"))} {
			for _, scheme := range []string{diagnosis.Hex, diagnosis.Standard} {
				if mistakes := mistakesOf(scheme, computed); len(mistakes) == 0 || mistakes[0].Proved {
					t.Errorf("%s %q: %v", scheme, computed, names(mistakes))
				}
			}
		}
	})
}

// mistakesOf returns the mistakes of a delivery with a signature that a program computed.
func mistakesOf(scheme string, computed string) []diagnosis.Mistake {
	d := genuine(body)
	d.Header.Set(map[string]string{diagnosis.Hex: "X-Service-Signature", diagnosis.Standard: "webhook-signature"}[scheme], computed)
	for _, r := range diagnosis.Check(d) {
		if r.Scheme == scheme {
			return r.Mistakes
		}
	}
	return nil
}
