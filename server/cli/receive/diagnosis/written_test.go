package diagnosis_test

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"hash"
	"net/url"
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
		{"in quotes", "X-Service-Signature", `"` + right + `"`, "signature_quoted", ""},
		{"base64 in place of hex", "X-Service-Signature", strings.TrimPrefix(inStandard(mac(secret, stamp+"."+body)), "v1,"), "signature_in_base64", ""},
		{"the base64 of hex", "X-Service-Signature", base64.StdEncoding.EncodeToString([]byte(right)), "signature_encoded_twice", ""},
		{"cut off", "X-Service-Signature", right[:33], "signature_cut_off", ""},
		{"joined with another", "X-Service-Signature", strings.Repeat("0", 64) + ", " + right, "header_malformed", ""},
		{"in milliseconds", "X-Service-Timestamp", stamp + "000", "timestamp_milliseconds", ""},
		{"another timestamp", "X-Service-Timestamp", "1800000007", "timestamp_altered", ""},
		{"no timestamp", "X-Service-Timestamp", "", "header_missing", ""},
		{"no signature", "X-Service-Signature", "", "header_missing", ""},
		{"a signature by a stranger", "X-Service-Signature", strings.Repeat("ab", 32), "header_altered", ""},

		{"no version", "webhook-signature", raw, "", "signature_label"},
		{"a label", "webhook-signature", "sha256=" + raw, "", "signature_label"},
		{"hex in place of base64", "webhook-signature", "v1," + inHex(mac(decoded(secret), id+"."+stamp+"."+body)), "", "signature_in_hex"},
		{"the alphabet of URLs", "webhook-signature", strings.NewReplacer("+", "-", "/", "_").Replace(standardOf(secret, body)), "", "signature_in_base64url"},
		{"no padding", "webhook-signature", strings.TrimRight(standard, "="), "", "signature_padding"},
		{"percent-encoded", "webhook-signature", url.QueryEscape(standard), "", "signature_percent_encoded"},
		{"plus signs lost", "webhook-signature", strings.ReplaceAll(standard, "+", " "), "", "signature_plus_lost"},
		{"cut off, standard", "webhook-signature", standard[:20], "", "signature_cut_off"},
		{"another id", "webhook-id", "evt_9", "", "id_altered"},
		{"no signature, standard", "webhook-signature", "", "", "header_missing"},
		{"an asymmetric one", "webhook-signature", "v1a,AAAA", "", "header_malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := genuine(body)
			d.Header.Set(c.header, c.value)
			if c.header == "webhook-signature" && !strings.ContainsAny(raw, "+/") {
				t.Fatal("the signature of the test has no character that can be lost")
			}
			check(t, d, c.hex, c.standard)
		})
	}

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
func TestExplain(t *testing.T) {
	t.Parallel()
	message := stamp + "." + body
	with := func(h func() hash.Hash, key, message string) []byte {
		m := hmac.New(h, []byte(key))
		m.Write([]byte(message))
		return m.Sum(nil)
	}
	plain := sha256.Sum256([]byte(secret + message))
	after := sha256.Sum256([]byte(message + secret))
	for _, c := range []struct {
		name     string
		computed string
		scheme   diagnosis.Scheme
		want     string
	}{
		{"the right one", hexOf(secret, body), "hex", ""},
		{"the right one, standard", standardOf(secret, body), "standard", ""},
		{"without the timestamp", inHex(mac(secret, body)), "hex", "timestamp_missing"},
		{"without the timestamp, standard", inStandard(mac(decoded(secret), body)), "standard", "timestamp_missing"},
		{"in milliseconds", inHex(mac(secret, stamp+"000."+body)), "hex", "timestamp_milliseconds"},
		{"as a fraction", inHex(mac(secret, stamp+".0."+body)), "hex", "timestamp_as_fraction"},
		{"over its own clock", inHex(mac(secret, "1800000042."+body)), "hex", "timestamp_of_own_clock"},
		{"without the dot", inHex(mac(secret, stamp+body)), "hex", "separator"},
		{"with a colon", inHex(mac(secret, stamp+":"+body)), "hex", "separator"},
		{"the other way round", inHex(mac(secret, body+"."+stamp)), "hex", "message_order"},
		{"the message of Standard Webhooks", inHex(mac(secret, id+"."+message)), "hex", "message_of_other_scheme"},
		{"the message of the hex scheme", inStandard(mac(decoded(secret), message)), "standard", "message_of_other_scheme"},
		{"the timestamp first, standard", inStandard(mac(decoded(secret), stamp+"."+id+"."+body)), "standard", "message_order"},
		{"without the body", inHex(mac(secret, stamp)), "hex", "body_missing"},
		{"the body read before", inHex(mac(secret, stamp+".")), "hex", "body_empty"},
		{"the data alone", inHex(mac(secret, stamp+`.{"zip":"1010","name":"Zoë <z@a.example> & co","path":"a/b","total":19.90,"emoji":"😀"}`)), "hex", "body_data_alone"},
		{"the JSON as a string", inHex(mac(secret, stamp+`."{\"a\":1}"`)), "hex", "body_quoted"},
		{"the prefix left out", inHex(mac(strings.TrimPrefix(secret, "whsec_"), message)), "hex", "secret_without_prefix"},
		{"the secret decoded", inHex(mac(decoded(secret), message)), "hex", "secret_decoded"},
		{"the secret not decoded", inStandard(mac(secret, id+"."+message)), "standard", "secret_not_decoded"},
		{"the secret not decoded, without its prefix", inStandard(mac(strings.TrimPrefix(secret, "whsec_"), id+"."+message)), "standard", "secret_not_decoded"},
		{"the secret with a line feed", inHex(mac(secret+"\n", message)), "hex", "secret_with_space"},
		{"the secret in quotes", inHex(mac(`"`+secret+`"`, message)), "hex", "secret_with_quotes"},
		{"the secret without padding", inHex(mac(strings.TrimRight(secret, "="), message)), "hex", "secret_padding"},
		{"the secret undefined", inHex(mac("undefined", message)), "hex", "secret_not_set"},
		{"the secret empty", inHex(mac("", message)), "hex", "secret_not_set"},
		{"SHA-1", inHex(with(sha1.New, secret, message)), "hex", "wrong_hash"},
		{"SHA-512", inHex(with(sha512.New, secret, message)), "hex", "wrong_hash"},
		{"MD5", inHex(with(md5.New, secret, message)), "hex", "wrong_hash"},
		{"no HMAC", inHex(plain[:]), "hex", "not_hmac"},
		{"no HMAC, the key last", inHex(after[:]), "hex", "not_hmac"},
		{"the arguments swapped", inHex(mac(message, secret)), "hex", "key_and_message_swapped"},
		{"two mistakes", inHex(mac(decoded(secret), body)), "hex", "timestamp_missing secret_decoded"},
		{"three mistakes and upper case", strings.ToUpper(inHex(with(sha1.New, decoded(secret), body))), "hex",
			"timestamp_missing wrong_hash signature_upper_case secret_decoded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := genuine(body)
			if c.name == "the JSON as a string" {
				d.Body = []byte(`{"a":1}`)
			}
			scheme, mistakes, ok := d.Explain(c.computed)
			if diff := cmp.Diff(c.want, strings.Join(names(mistakes), " ")); diff != "" || !ok || scheme != c.scheme {
				t.Errorf("%t, %s: %s%+v", ok, scheme, diff, mistakes)
			}
		})
	}
	t.Run("nothing explains what is none", func(t *testing.T) {
		t.Parallel()
		for _, computed := range []string{"", " ", ",", "v1,", "v1", "zz", "abc", strings.Repeat("0", 64), "\x00", "%zz", strings.Repeat("a ", 5000)} {
			if scheme, mistakes, ok := genuine(body).Explain(computed); ok {
				t.Errorf("%q: %s %v", computed, scheme, names(mistakes))
			}
		}
	})
}
