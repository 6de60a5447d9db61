package diagnosis_test

import (
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/cli/receive/diagnosis"
)

// Whatever is done to a delivery: what dispatch/signature takes is called right and nothing is called a mistake, and what
// it refuses is called wrong and has a reason; and no reason repeats the secret.
func TestTheDiagnosisAgreesWithTheVerifier(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 24, 40).Draw(t, "key")
		whsec := "whsec_" + base64.StdEncoding.EncodeToString(key)
		sent := rapid.Int64Range(1, 1_900_000_000).Draw(t, "sent")
		text := rapid.OneOf(rapid.Just(`{"id":"evt_01jd3rx1","data":{}}`), rapid.Just(""), rapid.StringN(0, 60, -1)).Draw(t, "body")
		d := genuine(text)
		d.Secret, d.Now = whsec, time.Unix(sent+rapid.Int64Range(-400, 400).Draw(t, "off"), 0)
		stamp := strconv.FormatInt(sent, 10)
		d.Header.Set("X-Service-Timestamp", stamp)
		d.Header.Set("webhook-timestamp", stamp)
		d.Header.Set("X-Service-Signature", inHex(mac(whsec, stamp+"."+text)))
		d.Header.Set("webhook-signature", inStandard(mac(string(key), id+"."+stamp+"."+text)))

		change := rapid.SampledFrom([]string{"", "", "body", "secret", "header", "no header"}).Draw(t, "change")
		value := rapid.OneOf(rapid.StringN(0, 70, -1), rapid.StringMatching(`v1,[A-Za-z0-9+/]{43}=`), rapid.StringMatching(`[0-9a-fA-F]{0,70}`)).Draw(t, "value")
		name := rapid.SampledFrom([]string{"X-Service-Signature", "X-Service-Timestamp", "webhook-id", "webhook-timestamp", "webhook-signature"}).Draw(t, "name")
		switch change {
		case "body":
			d.Body = []byte(value)
		case "secret":
			d.Secret = value
		case "header":
			d.Header.Set(name, value)
		case "no header":
			d.Header.Del(name)
		}

		results := diagnosis.Check(d)
		for i, err := range []error{
			signature.Verify(d.Secret, d.Header, d.Body, d.Now, 0), signature.VerifyStandard(d.Secret, d.Header, d.Body, d.Now, 0),
		} {
			v := results[i]
			if (v.Err == nil) != (err == nil) || (v.Err == nil) != (len(v.Mistakes) == 0) {
				t.Fatalf("%s: diagnosis %v with %d mistakes, verifier %v", v.Scheme, v.Err, len(v.Mistakes), err)
			}
			for _, m := range v.Mistakes {
				if len(d.Secret) > 15 && strings.Contains(m.What+m.Advice, d.Secret) {
					t.Fatalf("%s: %s repeats the secret", v.Scheme, m.Name)
				}
			}
		}
	})
}

// No explanation of an unsigned delivery is called proved.
func TestNothingIsProvedOfAForgery(t *testing.T) {
	t.Parallel()
	for range 8 {
		d, key := genuine(body), rand.Text()
		d.Header.Set("X-Service-Signature", inHex(mac(key, stamp+"."+body)))
		d.Header.Set("webhook-signature", inStandard(mac(key, id+"."+stamp+"."+body)))
		for _, v := range diagnosis.Check(d) {
			if v.Err == nil || len(v.Mistakes) == 0 || v.Mistakes[0].Proved {
				t.Fatalf("%s: %+v", v.Scheme, v)
			}
		}
	}
}

func BenchmarkDiagnose(b *testing.B) {
	for _, size := range []int{1 << 10, 4 << 10, 256 << 10} {
		b.Run(strconv.Itoa(size)+" bytes, unexplained", func(b *testing.B) {
			d := genuine(`{"id":"` + id + `","data":"` + strings.Repeat("x/é", size/4) + `"}`)
			d.Secret = oldSecret
			for b.Loop() {
				diagnosis.Check(d)
			}
		})
	}
}
