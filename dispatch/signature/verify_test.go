package signature_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
)

const (
	sentAt   = 1800000000
	testBody = `{"event":"user.created"}`
)

var sent = time.Unix(sentAt, 0)

// signedHeaders returns the headers of a delivery of testBody, signed with each secret, the current one first.
func signedHeaders(tb testing.TB, prefix string, secrets ...string) http.Header {
	tb.Helper()
	h := http.Header{}
	h.Set(prefix+"-Timestamp", strconv.Itoa(sentAt))
	h.Set("webhook-timestamp", strconv.Itoa(sentAt))
	h.Set("webhook-id", "evt_1")
	var list []string
	for i, secret := range secrets {
		h.Set(prefix+"-Signature"+[]string{"", "-Previous"}[i], signHex(tb, secret, sentAt, testBody))
		list = append(list, signStandard(tb, secret, "evt_1", sentAt, testBody))
	}
	h.Set("webhook-signature", strings.Join(list, " "))
	return h
}

const (
	oldSecret   = testSecret
	newSecret   = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD6QEu+S1bE8g="
	otherSecret = "whsec_plJ3nmyCDGBKInavdOK15jsl6QEu+S1bE8gC2FVsBQI="
)

// forBothSchemes runs a test for both schemes.
func forBothSchemes(t *testing.T, name string, f func(t *testing.T, verify func(signature.Verifier, http.Header, []byte, time.Time) error)) {
	t.Helper()
	t.Run(name+", hex", func(t *testing.T) { t.Parallel(); f(t, signature.Verifier.Verify) })
	t.Run(name+", standard", func(t *testing.T) { t.Parallel(); f(t, signature.Verifier.VerifyStandard) })
}

type verifyFunc = func(signature.Verifier, http.Header, []byte, time.Time) error

func TestSecrets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		signed []string // secrets that sign the delivery
		held   []string // secrets of the receiver
		want   error
	}{
		{"the right secret", []string{newSecret}, []string{newSecret}, nil},
		{"another secret", []string{newSecret}, []string{otherSecret}, signature.ErrMismatch},
		{"in an overlap a receiver that holds the old secret", []string{newSecret, oldSecret}, []string{oldSecret}, nil},
		{"in an overlap a receiver that holds the new secret", []string{newSecret, oldSecret}, []string{newSecret}, nil},
		{"in an overlap a receiver that holds neither", []string{newSecret, oldSecret}, []string{otherSecret}, signature.ErrMismatch},
		{"a receiver that holds both before the rotation", []string{oldSecret}, []string{oldSecret, newSecret}, nil},
		{"a receiver that holds both after the overlap", []string{newSecret}, []string{oldSecret, newSecret}, nil},
		{"no secret", []string{newSecret}, nil, signature.ErrSecret},
		{"an empty secret", []string{newSecret}, []string{""}, signature.ErrSecret},
	} {
		forBothSchemes(t, c.name, func(t *testing.T, verify verifyFunc) {
			err := verify(signature.Verifier{Secrets: c.held}, signedHeaders(t, "X-Service", c.signed...), []byte(testBody), sent)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}

	forBothSchemes(t, "a signature by the empty key is refused by an empty secret", func(t *testing.T, verify verifyFunc) {
		// HMAC-SHA256 with the empty key over "1800000000." and testBody. Anybody can compute it.
		h := signedHeaders(t, "X-Service", newSecret)
		if err := verify(signature.Verifier{Secrets: []string{"", newSecret}}, h, []byte(testBody), sent); !errors.Is(err, signature.ErrSecret) {
			t.Errorf("got %v", err)
		}
	})
}

func TestTolerance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		tolerance time.Duration
		now       time.Time
		want      error
	}{
		{"the default takes five minutes late", 0, sent.Add(5 * time.Minute), nil},
		{"the default refuses more", 0, sent.Add(5*time.Minute + time.Second), signature.ErrTooOld},
		{"the default takes five minutes early", 0, sent.Add(-5 * time.Minute), nil},
		{"the default refuses what is earlier", 0, sent.Add(-5*time.Minute - time.Second), signature.ErrTooNew},
		{"a shorter one is kept", time.Second, sent.Add(2 * time.Second), signature.ErrTooOld},
		{"a longer one is kept", time.Hour, sent.Add(59 * time.Minute), nil},
		{"the year 1", 0, time.Time{}, signature.ErrTooNew},
	} {
		forBothSchemes(t, c.name, func(t *testing.T, verify verifyFunc) {
			v := signature.Verifier{Secrets: []string{newSecret}, Tolerance: c.tolerance}
			if err := verify(v, signedHeaders(t, "X-Service", newSecret), []byte(testBody), c.now); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}

	forBothSchemes(t, "a wrong signature is a mismatch however old it is", func(t *testing.T, verify verifyFunc) {
		v := signature.Verifier{Secrets: []string{otherSecret}}
		if err := verify(v, signedHeaders(t, "X-Service", newSecret), []byte(testBody), sent.Add(time.Hour)); !errors.Is(err, signature.ErrMismatch) {
			t.Errorf("got %v", err)
		}
	})
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	hexOf := signedHeaders(t, "X-Service", newSecret).Get("X-Service-Signature")
	standardOf := signedHeaders(t, "X-Service", newSecret).Get("webhook-signature")
	verifiers := map[string]verifyFunc{"hex": signature.Verifier.Verify, "standard": signature.Verifier.VerifyStandard}
	for _, c := range []struct {
		name   string
		scheme string
		header string
		values []string
		want   error
	}{
		{"no signature", "hex", "X-Service-Signature", nil, signature.ErrMissing},
		{"an empty signature", "hex", "X-Service-Signature", []string{""}, signature.ErrMissing},
		{"two signatures", "hex", "X-Service-Signature", []string{hexOf, hexOf}, signature.ErrMalformed},
		{"upper-case digits", "hex", "X-Service-Signature", []string{strings.ToUpper(hexOf)}, signature.ErrMalformed},
		{"a digit too few", "hex", "X-Service-Signature", []string{hexOf[1:]}, signature.ErrMalformed},
		{"a digit too many", "hex", "X-Service-Signature", []string{hexOf + "0"}, signature.ErrMalformed},
		{"something else than digits", "hex", "X-Service-Signature", []string{strings.Repeat("a", 31) + "zz" + strings.Repeat("a", 31)}, signature.ErrMalformed},
		{"another signature", "hex", "X-Service-Signature", []string{strings.Repeat("a", 64)}, signature.ErrMismatch},
		{"a malformed previous signature", "hex", "X-Service-Signature-Previous", []string{"x"}, signature.ErrMalformed},
		{"a wrong previous signature beside a right one", "hex", "X-Service-Signature-Previous", []string{strings.Repeat("a", 64)}, nil},
		{"no timestamp", "hex", "X-Service-Timestamp", nil, signature.ErrMissing},
		{"two timestamps", "hex", "X-Service-Timestamp", []string{"1800000000", "1800000001"}, signature.ErrMalformed},
		{"another timestamp", "hex", "X-Service-Timestamp", []string{"1800000001"}, signature.ErrMismatch},
		{"a timestamp with a sign", "hex", "X-Service-Timestamp", []string{"+1800000000"}, signature.ErrMalformed},
		{"a timestamp before 1970", "hex", "X-Service-Timestamp", []string{"-1"}, signature.ErrMalformed},
		{"a timestamp with a leading zero", "hex", "X-Service-Timestamp", []string{"01800000000"}, signature.ErrMalformed},
		{"a timestamp with a space", "hex", "X-Service-Timestamp", []string{"1800000000 "}, signature.ErrMalformed},
		{"a timestamp as a date", "hex", "X-Service-Timestamp", []string{"2027-01-15T08:00:00Z"}, signature.ErrMalformed},
		{"a timestamp beyond all dates", "hex", "X-Service-Timestamp", []string{"9223372036854775807"}, signature.ErrMalformed},

		{"no id", "standard", "webhook-id", nil, signature.ErrMissing},
		{"another id", "standard", "webhook-id", []string{"evt_2"}, signature.ErrMismatch},
		{"no timestamp", "standard", "webhook-timestamp", nil, signature.ErrMissing},
		{"another timestamp", "standard", "webhook-timestamp", []string{"1800000001"}, signature.ErrMismatch},
		{"no signature", "standard", "webhook-signature", nil, signature.ErrMissing},
		{"two signature headers", "standard", "webhook-signature", []string{standardOf, standardOf}, signature.ErrMalformed},
		{"a signature without a version", "standard", "webhook-signature", []string{standardOf[3:]}, signature.ErrMalformed},
		{"a signature of version v1a alone", "standard", "webhook-signature", []string{"v1a," + standardOf[3:]}, signature.ErrMalformed},
		{"a signature of version v2 beside v1", "standard", "webhook-signature", []string{"v2,x  v1a,y " + standardOf + " "}, nil},
		{"a signature without padding", "standard", "webhook-signature", []string{strings.TrimRight(standardOf, "=")}, signature.ErrMismatch},
		{"a thousand signatures", "standard", "webhook-signature", []string{strings.Repeat(standardOf+" ", 1000)}, signature.ErrMalformed},
	} {
		t.Run(c.scheme+": "+c.name, func(t *testing.T) {
			t.Parallel()
			h := signedHeaders(t, "X-Service", newSecret)
			h.Del(c.header)
			for _, v := range c.values {
				h.Add(c.header, v)
			}
			err := verifiers[c.scheme](signature.Verifier{Secrets: []string{newSecret}}, h, []byte(testBody), sent)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), hexOf) {
				t.Errorf("the error shows the right signature: %v", err)
			}
		})
	}

	t.Run("headers may have the operator's prefix", func(t *testing.T) {
		t.Parallel()
		h := signedHeaders(t, "Acme", newSecret)
		if err := (signature.Verifier{Secrets: []string{newSecret}, HeaderPrefix: "Acme"}).Verify(h, []byte(testBody), sent); err != nil {
			t.Error(err)
		}
		if err := (signature.Verifier{Secrets: []string{newSecret}}).Verify(h, []byte(testBody), sent); !errors.Is(err, signature.ErrMissing) {
			t.Errorf("under the default prefix: %v", err)
		}
	})

	t.Run("the functions for one secret read the same headers", func(t *testing.T) {
		t.Parallel()
		h := signedHeaders(t, "X-Service", newSecret)
		if err := signature.Verify(newSecret, h, []byte(testBody), sent, 0); err != nil {
			t.Error(err)
		}
		if err := signature.VerifyStandard(newSecret, h, []byte(testBody), sent, 0); err != nil {
			t.Error(err)
		}
		if err := signature.Verify(newSecret, h, []byte(testBody), sent.Add(time.Minute), time.Second); !errors.Is(err, signature.ErrTooOld) {
			t.Errorf("with a tolerance of a second: %v", err)
		}
	})
}

// With a dot in an id, one signed message could be read as another. Here the body contains a timestamp.
func TestShiftedParts(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	h.Set("webhook-id", "evt_1.1700000000")
	h.Set("webhook-timestamp", "1800000000")
	h.Set("webhook-signature", signStandard(t, newSecret, "evt_1", 1700000000, "1800000000.{}"))
	if err := signature.VerifyStandard(newSecret, h, []byte("{}"), sent, 0); !errors.Is(err, signature.ErrMalformed) {
		t.Errorf("got %v", err)
	}
}

// No bit of the signed parts or of the signature can be changed.
func TestBitFlips(t *testing.T) {
	t.Parallel()
	headers := map[string][]string{
		"hex":      {"X-Service-Signature", "X-Service-Timestamp"},
		"standard": {"webhook-id", "webhook-timestamp", "webhook-signature"},
	}
	forBothSchemes(t, "are refused", func(t *testing.T, verify verifyFunc) {
		scheme := t.Name()[strings.LastIndex(t.Name(), "_")+1:]
		v := signature.Verifier{Secrets: []string{newSecret}}
		original := signedHeaders(t, "X-Service", newSecret)
		for _, name := range headers[scheme] {
			for i := range len(original.Get(name)) * 8 {
				h := original.Clone()
				h.Set(name, flip(original.Get(name), i))
				if verify(v, h, []byte(testBody), sent) == nil {
					t.Errorf("%s with bit %d flipped is accepted: %q", name, i, h.Get(name))
				}
			}
		}
		for i := range len(testBody) * 8 {
			if err := verify(v, original, []byte(flip(testBody, i)), sent); !errors.Is(err, signature.ErrMismatch) {
				t.Errorf("body with bit %d flipped: %v", i, err)
			}
		}
	})
}

func flip(s string, bit int) string {
	b := []byte(s)
	b[bit/8] ^= 1 << (bit % 8)
	return string(b)
}

func BenchmarkVerify(b *testing.B) {
	h := signedHeaders(b, "X-Service", newSecret)
	v := signature.Verifier{Secrets: []string{newSecret}}
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Verify(h, []byte(testBody), sent); err != nil {
			b.Fatal(err)
		}
	}
}
