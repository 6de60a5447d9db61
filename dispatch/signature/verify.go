package signature

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Defaults of a Verifier.
const (
	DefaultHeaderPrefix = "X-Service"
	DefaultTolerance    = 5 * time.Minute
)

// Headers of Standard Webhooks.
const (
	idHeader        = "webhook-id"
	timestampHeader = "webhook-timestamp"
	signatureHeader = "webhook-signature"
)

// Verifier checks the signatures of deliveries for a receiver. Only Secrets must be set. It does not change: concurrent use is safe.
type Verifier struct {
	// Secrets contains the subscription's secret. During a rotation it may contain the old and the new one, so that
	// deliveries signed with either are accepted.
	Secrets []string
	// HeaderPrefix is the prefix of the header names in the hex scheme, a setting of the operator. "" is X-Service.
	HeaderPrefix string
	// Tolerance is how far a timestamp may lie in the past or the future: it limits replays, and clocks differ. 0 is five minutes.
	Tolerance time.Duration
}

// Verify checks a delivery in the hex scheme. It checks X-Service-Signature and, in an overlap of two secrets,
// X-Service-Signature-Previous; one match is enough. The error wraps one of the errors of this package. The timestamp
// is checked last, so ErrTooOld and ErrTooNew mean that the sender knows the secret.
func (v Verifier) Verify(header http.Header, body []byte, now time.Time) error {
	prefix := cmp.Or(v.HeaderPrefix, DefaultHeaderPrefix)
	sent, err := timestamp(header, prefix+"-Timestamp")
	if err != nil {
		return err
	}
	signatures, err := hexSignatures(header, prefix+"-Signature")
	if err != nil {
		return err
	}
	return cmp.Or(v.match(signatures, hexKeys, func(key []byte) []byte {
		s := Signer{hex: macPool{key: key}}
		return s.AppendHex(nil, sent, body)
	}), v.checkTime(time.Unix(sent, 0), now))
}

// VerifyStandard checks a delivery by the headers webhook-id, webhook-timestamp and webhook-signature of Standard Webhooks.
// One matching signature is enough. Signatures of other versions than v1 are skipped. It returns the same errors as Verify.
func (v Verifier) VerifyStandard(header http.Header, body []byte, now time.Time) error {
	id, err := singleValue(header, idHeader)
	if err != nil {
		return err
	}
	// With a dot in the id, the same signed bytes could be read as another id, timestamp and body.
	if strings.Contains(id, ".") {
		return fmt.Errorf("%w: %s contains a dot", ErrMalformed, idHeader)
	}
	sent, err := timestamp(header, timestampHeader)
	if err != nil {
		return err
	}
	signatures, err := standardSignatures(header)
	if err != nil {
		return err
	}
	return cmp.Or(v.match(signatures, standardKeys, func(key []byte) []byte {
		s := Signer{standard: macPool{key: key}}
		return s.AppendStandard(nil, id, sent, body)
	}), v.checkTime(time.Unix(sent, 0), now))
}

// Verify is Verifier.Verify with one secret and the default header prefix.
func Verify(secret string, header http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	return Verifier{Secrets: []string{secret}, Tolerance: tolerance}.Verify(header, body, now)
}

// VerifyStandard is Verifier.VerifyStandard with one secret.
func VerifyStandard(secret string, header http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	return Verifier{Secrets: []string{secret}, Tolerance: tolerance}.VerifyStandard(header, body, now)
}

// match compares each received signature with the signature by each secret, in constant time.
func (v Verifier) match(signatures []string, keys func(string) ([][]byte, error), sign func(key []byte) []byte) error {
	if len(v.Secrets) == 0 {
		return fmt.Errorf("%w: Secrets is empty; set it", ErrSecret)
	}
	matched := false
	for _, secret := range v.Secrets {
		possible, err := keys(secret)
		if err != nil {
			return err
		}
		for _, key := range possible {
			want := sign(key)
			for _, signature := range signatures {
				matched = hmac.Equal(want, []byte(signature)) || matched
			}
		}
	}
	if !matched {
		return ErrMismatch
	}
	return nil
}

func (v Verifier) checkTime(sent, now time.Time) error {
	tolerance := cmp.Or(v.Tolerance, DefaultTolerance)
	switch {
	case sent.Before(now.Add(-tolerance)):
		return fmt.Errorf("%w: sent %v before now, %v allowed", ErrTooOld, now.Sub(sent).Round(time.Second), tolerance)
	case sent.After(now.Add(tolerance)):
		return fmt.Errorf("%w: sent %v after now, %v allowed", ErrTooNew, sent.Sub(now).Round(time.Second), tolerance)
	}
	return nil
}

// singleValue returns the only value of a header. With two values, other software might read the other one.
func singleValue(header http.Header, name string) (string, error) {
	switch values := header.Values(name); {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", fmt.Errorf("%w: %s", ErrMissing, name)
	case len(values) > 1:
		return "", fmt.Errorf("%w: %s appears %d times", ErrMalformed, name, len(values))
	default:
		return values[0], nil
	}
}

// timestamp returns the Unix seconds in a header. It accepts only the form that a signer writes. The number is signed,
// not the text, so "+1" or "01" would match the signature of "1".
func timestamp(header http.Header, name string) (int64, error) {
	text, err := singleValue(header, name)
	if err != nil {
		return 0, err
	}
	const maxDigits = 12 // far beyond any date, and within a time.Time
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || len(text) > maxDigits || seconds < 0 || strconv.FormatInt(seconds, 10) != text {
		return 0, fmt.Errorf("%w: %s is not a time in Unix seconds", ErrMalformed, name)
	}
	return seconds, nil
}

// hexSignatures returns the signature and, if there is one, the signature with the previous secret. Upper-case digits are malformed.
// No sender writes them, and every bit of a signature should count.
func hexSignatures(header http.Header, name string) (signatures []string, err error) {
	for _, name := range []string{name, name + "-Previous"} {
		text, err := singleValue(header, name)
		switch {
		case errors.Is(err, ErrMissing) && len(signatures) > 0:
			return signatures, nil
		case err != nil:
			return nil, err
		case len(text) != hex.EncodedLen(sha256.Size) || strings.Trim(text, "0123456789abcdef") != "":
			return nil, fmt.Errorf("%w: %s is not 64 lower-case hex digits", ErrMalformed, name)
		}
		signatures = append(signatures, text)
	}
	return signatures, nil
}

// standardSignatures returns the v1 signatures of the space-separated list.
func standardSignatures(header http.Header) ([]string, error) {
	list, err := singleValue(header, signatureHeader)
	if err != nil {
		return nil, err
	}
	const maxSignatures = 16 // more than any rotation needs; limits the work for a stranger
	var signatures []string
	for part := range strings.SplitSeq(list, " ") {
		if strings.HasPrefix(part, standardVersion) {
			signatures = append(signatures, part)
		}
	}
	if len(signatures) == 0 || len(signatures) > maxSignatures {
		return nil, fmt.Errorf("%w: %s has %d signatures of version v1", ErrMalformed, signatureHeader, len(signatures))
	}
	return signatures, nil
}
