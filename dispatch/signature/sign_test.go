package signature_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/keyhook/keyhook/dispatch/signature"
)

// testSecret is a Standard Webhooks secret, so that both schemes accept it.
const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func signHex(tb testing.TB, secret string, timestamp int64, body string) string {
	tb.Helper()
	s, err := signature.NewSigner(secret)
	if err != nil {
		tb.Fatal(err)
	}
	return string(s.AppendHex(nil, timestamp, []byte(body)))
}

func signStandard(tb testing.TB, secret, id string, timestamp int64, body string) string {
	tb.Helper()
	s, err := signature.NewSigner(secret)
	if err != nil {
		tb.Fatal(err)
	}
	return string(s.AppendStandard(nil, id, timestamp, []byte(body)))
}

func TestKnownAnswers(t *testing.T) {
	t.Parallel()

	t.Run("the hex scheme", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			secret    string
			timestamp int64
			body      string
			want      string
		}{
			{"a-subscription-secret", 1800000000, `{"event":"user.created"}`, "d17d66b66fca89390c5b967c45e8928fc732db07a0aabe8167b1e98213081ffe"},
			{"QGvaZ0uPwA9nYi7jr31JtZn1EKK4pJpK", 1726285679, "foo", "e2af2618d5ffd700eb369904b7237ec4ac7d37873cfe6654265af2e53b44da6b"},
		} {
			if got := signHex(t, c.secret, c.timestamp, c.body); got != c.want {
				t.Errorf("%s at %d: %s, want %s", c.body, c.timestamp, got, c.want)
			}
		}
	})

	t.Run("Standard Webhooks, and a verifier whose secret has lost its prefix", func(t *testing.T) {
		t.Parallel()
		const want, id, body = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`
		if got := signStandard(t, testSecret, id, 1614265330, body); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {"1614265330"}, "Webhook-Signature": {want}}
		for _, secret := range []string{testSecret, strings.TrimPrefix(testSecret, "whsec_")} {
			if err := signature.VerifyStandard(secret, h, []byte(body), time.Unix(1614265330, 0), 0); err != nil {
				t.Errorf("with %s: %v", secret, err)
			}
		}
	})
}

// A second implementation of both schemes, from their documents, for bodies and secrets of many awkward sizes.
func TestAgainstTheDocuments(t *testing.T) {
	t.Parallel()
	bodies := []string{"", "x", "{}", "\x00\xff\r\n", "ü€😀", strings.Repeat("a", 55), strings.Repeat("a", 64), strings.Repeat("b", 256<<10)}
	for _, size := range []int{1, 24, 32, 63, 64, 65, 200} { // 64 is the block size of SHA-256; longer keys are hashed first
		secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", size)))
		for _, body := range bodies {
			for _, timestamp := range []int64{0, 1, 1800000000, 99999999999} {
				stamp := strconv.FormatInt(timestamp, 10)

				mac := hmac.New(sha256.New, []byte(secret))
				mac.Write([]byte(stamp + "." + body))
				if got, want := signHex(t, secret, timestamp, body), hex.EncodeToString(mac.Sum(nil)); got != want {
					t.Errorf("hex, key of %d bytes, body of %d: %s, want %s", size, len(body), got, want)
				}

				mac = hmac.New(sha256.New, []byte(strings.Repeat("k", size)))
				mac.Write([]byte("evt_1." + stamp + "." + body))
				want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
				if got := signStandard(t, secret, "evt_1", timestamp, body); got != want {
					t.Errorf("standard, key of %d bytes, body of %d: %s, want %s", size, len(body), got, want)
				}
			}
		}
	}
}

func TestSigner(t *testing.T) {
	t.Parallel()

	t.Run("a signature is appended after the existing bytes", func(t *testing.T) {
		t.Parallel()
		s, _ := signature.NewSigner(testSecret)
		if got := string(s.AppendHex([]byte("sig="), 1, nil)); got != "sig="+signHex(t, testSecret, 1, "") {
			t.Errorf("got %s", got)
		}
		list := s.AppendStandard(append(s.AppendStandard(nil, "m", 1, nil), ' '), "m", 1, nil)
		if one := signStandard(t, testSecret, "m", 1, ""); string(list) != one+" "+one {
			t.Errorf("got %s", list)
		}
	})

	t.Run("an id may be longer than the scratch buffer", func(t *testing.T) {
		t.Parallel()
		id := strings.Repeat("i", 1000)
		key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(testSecret, "whsec_"))
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + ".7.body"))
		if got, want := signStandard(t, testSecret, id, 7, "body"), "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})

	t.Run("concurrent use is safe", func(t *testing.T) {
		t.Parallel()
		s, _ := signature.NewSigner(testSecret)
		wantHex, wantStandard := signHex(t, testSecret, 5, "body"), signStandard(t, testSecret, "m", 5, "body")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 200 {
					if got := string(s.AppendHex(nil, 5, []byte("body"))); got != wantHex {
						t.Errorf("hex: %s, want %s", got, wantHex)
					}
					if got := string(s.AppendStandard(nil, "m", 5, []byte("body"))); got != wantStandard {
						t.Errorf("standard: %s, want %s", got, wantStandard)
					}
				}
			})
		}
		wg.Wait()
	})

	t.Run("a secret without the prefix of Standard Webhooks is the key itself, in both schemes", func(t *testing.T) {
		t.Parallel()
		const secret, message = "an-imported-secret-of-another-system", "evt_1.1700000000.{}"
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(message))
		if got, want := signStandard(t, secret, "evt_1", 1700000000, "{}"), "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)); got != want {
			t.Errorf("standard: %s, want %s", got, want)
		}
		h := http.Header{"Webhook-Id": {"evt_1"}, "Webhook-Timestamp": {"1700000000"}, "Webhook-Signature": {signStandard(t, secret, "evt_1", 1700000000, "{}")}}
		if err := signature.VerifyStandard(secret, h, []byte("{}"), time.Unix(1700000000, 0), 0); err != nil {
			t.Errorf("the verifier: %v", err)
		}
		if err := signature.VerifyStandard(secret+"x", h, []byte("{}"), time.Unix(1700000000, 0), 0); !errors.Is(err, signature.ErrMismatch) {
			t.Errorf("another secret: %v", err)
		}
	})

	t.Run("an unusable secret is refused, and the error does not repeat it", func(t *testing.T) {
		t.Parallel()
		for _, secret := range []string{"", "whsec_", "whsec_hunter2!", testSecret[:len(testSecret)-1], "whsec_" + testSecret} {
			_, err := signature.NewSigner(secret)
			if !errors.Is(err, signature.ErrSecret) {
				t.Errorf("%q: %v", secret, err)
			} else if secret != "" && secret != "whsec_" && strings.Contains(err.Error(), secret) {
				t.Errorf("the error repeats the secret: %v", err)
			}
		}
	})
}

// Not parallel, because AllocsPerRun counts the allocations of all goroutines.
func TestAllocations(t *testing.T) {
	s, _ := signature.NewSigner(testSecret)
	dst, body := make([]byte, 0, 128), make([]byte, 1024)
	s.AppendHex(dst, 1, body)
	s.AppendStandard(dst, "evt_1", 1, body)
	if n := testing.AllocsPerRun(200, func() { s.AppendHex(dst, 1800000000, body) }); n != 0 {
		t.Errorf("hex: %v allocations", n)
	}
	if n := testing.AllocsPerRun(200, func() { s.AppendStandard(dst, "evt_1", 1800000000, body) }); n != 0 {
		t.Errorf("standard: %v allocations", n)
	}
}

func BenchmarkSigner(b *testing.B) {
	s, _ := signature.NewSigner(testSecret)
	dst := make([]byte, 0, 128)
	for _, size := range []int{64, 1024, 64 << 10} {
		body := make([]byte, size)
		b.Run("hex of "+strconv.Itoa(size)+" bytes", func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				s.AppendHex(dst, 1800000000, body)
			}
		})
		b.Run("standard of "+strconv.Itoa(size)+" bytes", func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				s.AppendStandard(dst, "evt_01jd00000000000000000000", 1800000000, body)
			}
		})
	}
}

func TestOfficialLibrary(t *testing.T) {
	t.Parallel()
	webhook, err := standardwebhooks.NewWebhook(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	headers := http.Header{}
	headers.Set("webhook-id", "evt_1")
	headers.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	headers.Set("webhook-signature", "v1,b3RoZXI= "+signStandard(t, testSecret, "evt_1", now.Unix(), testBody))
	if err := webhook.Verify([]byte(testBody), headers); err != nil {
		t.Errorf("the official library of Standard Webhooks refuses our signature: %v", err)
	}
	if err := webhook.Verify([]byte(testBody+" "), headers); err == nil {
		t.Error("it accepts another body")
	}
}
