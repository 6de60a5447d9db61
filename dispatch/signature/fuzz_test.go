package signature_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/dispatch/signature"
)

// For any headers, Verify does not panic and accepts only signatures made with the secret. Every refusal is one of the
// package's errors.
func FuzzVerify(f *testing.F) {
	h := signedHeaders(f, "X-Service", newSecret, oldSecret)
	f.Add(h.Get("X-Service-Signature"), h.Get("X-Service-Signature-Previous"), h.Get("X-Service-Timestamp"), []byte(testBody))
	f.Add("", "", "", []byte{})
	f.Add("zz", "\x00", "-1", []byte("\xff"))
	f.Fuzz(func(t *testing.T, sig, previous, timestamp string, body []byte) {
		h := http.Header{}
		h.Set("X-Service-Signature", sig)
		h.Set("X-Service-Signature-Previous", previous)
		h.Set("X-Service-Timestamp", timestamp)
		requireKnownError(t, signature.Verify(newSecret, h, body, sent, 0), func() bool {
			right := signHex(t, newSecret, sentAt, string(body))
			return timestamp == "1800000000" && (sig == right || previous == right)
		})
	})
}

// The same for the headers of Standard Webhooks.
func FuzzVerifyStandard(f *testing.F) {
	h := signedHeaders(f, "X-Service", newSecret, oldSecret)
	f.Add(h.Get("webhook-id"), h.Get("webhook-timestamp"), h.Get("webhook-signature"), []byte(testBody))
	f.Add("", "", "", []byte{})
	f.Add("a.b", "1", "v1, v1a,v1,", []byte("\xff"))
	f.Fuzz(func(t *testing.T, id, timestamp, sig string, body []byte) {
		h := http.Header{}
		h.Set("webhook-id", id)
		h.Set("webhook-timestamp", timestamp)
		h.Set("webhook-signature", sig)
		requireKnownError(t, signature.VerifyStandard(newSecret, h, body, sent, 0), func() bool {
			right := signStandard(t, newSecret, id, sentAt, string(body))
			return timestamp == "1800000000" && strings.Contains(sig, right)
		})
	})
}

func requireKnownError(t *testing.T, err error, plausible func() bool) {
	t.Helper()
	for _, kind := range []error{
		signature.ErrMissing, signature.ErrMalformed, signature.ErrMismatch, signature.ErrTooOld, signature.ErrTooNew,
	} {
		if errors.Is(err, kind) {
			return
		}
	}
	if err != nil {
		t.Fatalf("an error of no kind: %v", err)
	}
	if !plausible() {
		t.Fatal("a forged signature is accepted")
	}
}
