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

// What a Verifier takes where nothing is set.
const (
	DefaultHeaderPrefix = "X-Service"
	DefaultTolerance    = 5 * time.Minute
)

// The headers of Standard Webhooks.
const (
	idHeader        = "webhook-id"
	timestampHeader = "webhook-timestamp"
	signatureHeader = "webhook-signature"
)

// Verifier checks the signatures of deliveries on the side of a receiver. Only Secrets must be set; it is not changed by
// use and safe for concurrent use.
type Verifier struct {
	// Secrets holds the subscription's secret. While a rotation is under way it may hold the old and the new one, so
	// that no delivery is refused whichever of them it was signed with.
	Secrets []string
	// HeaderPrefix begins the names of the headers in the hex scheme; an operator can set it. "" is X-Service.
	HeaderPrefix string
	// Tolerance is how far a timestamp may be in the past, against replays, or in the future, for clocks that differ.
	// 0 is five minutes.
	Tolerance time.Duration
}

// Verify checks a delivery to which the hex scheme applies: X-Service-Signature and, in an overlap of two secrets,
// X-Service-Signature-Previous, either of which may match. The error wraps one of the errors of this package. The
// timestamp is judged last: ErrTooOld and ErrTooNew mean that the sender knows the secret.
func (v Verifier) Verify(header http.Header, body []byte, now time.Time) error {
	prefix := cmp.Or(v.HeaderPrefix, DefaultHeaderPrefix)
	stamp, sent, err := timestamp(header, prefix+"-Timestamp")
	if err != nil {
		return err
	}
	signatures, err := hexSignatures(header, prefix+"-Signature")
	if err != nil {
		return err
	}
	err = v.match(signatures, hexKey, func(key []byte) []byte {
		s := Signer{macPool{key: key}}
		return s.AppendHex(nil, stamp, body)
	})
	if err != nil {
		return err
	}
	return v.checkTime(sent, now)
}

// VerifyStandard checks a delivery by the headers of Standard Webhooks: webhook-id, webhook-timestamp and
// webhook-signature, of whose signatures any may match; those of other versions than v1 are skipped. The errors are
// those of Verify.
func (v Verifier) VerifyStandard(header http.Header, body []byte, now time.Time) error {
	id, err := singleValue(header, idHeader)
	if err != nil {
		return err
	}
	// With a dot in the id, the bytes of one signed message could be read as another id, timestamp and body.
	if strings.Contains(id, ".") {
		return fmt.Errorf("%w: %s holds a dot", ErrMalformed, idHeader)
	}
	stamp, sent, err := timestamp(header, timestampHeader)
	if err != nil {
		return err
	}
	signatures, err := standardSignatures(header)
	if err != nil {
		return err
	}
	err = v.match(signatures, standardKey, func(key []byte) []byte {
		s := StandardSigner{macPool{key: key}}
		return s.Append(nil, id, stamp, body)
	})
	if err != nil {
		return err
	}
	return v.checkTime(sent, now)
}

// Verify is Verifier.Verify with one secret and the default header prefix.
func Verify(secret string, header http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	return Verifier{Secrets: []string{secret}, Tolerance: tolerance}.Verify(header, body, now)
}

// VerifyStandard is Verifier.VerifyStandard with one secret.
func VerifyStandard(secret string, header http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	return Verifier{Secrets: []string{secret}, Tolerance: tolerance}.VerifyStandard(header, body, now)
}

// match compares every given signature with that of every secret, each in constant time.
func (v Verifier) match(signatures []string, key func(string) ([]byte, error), sign func(key []byte) []byte) error {
	if len(v.Secrets) == 0 {
		return fmt.Errorf("%w: there is none", ErrSecret)
	}
	matched := false
	for _, secret := range v.Secrets {
		k, err := key(secret)
		if err != nil {
			return err
		}
		want := sign(k)
		for _, signature := range signatures {
			matched = hmac.Equal(want, []byte(signature)) || matched
		}
	}
	if !matched {
		return ErrMismatch
	}
	return nil
}

// inTime judges a timestamp whose signature is right.
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

// single returns the one value of a header. Two could be read differently by whoever looks at the other one.
func singleValue(header http.Header, name string) (string, error) {
	switch values := header.Values(name); {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", fmt.Errorf("%w: %s", ErrMissing, name)
	case len(values) > 1:
		return "", fmt.Errorf("%w: %s is there %d times", ErrMalformed, name, len(values))
	default:
		return values[0], nil
	}
}

// timestamp returns the Unix seconds in a header. Only the form that a signer writes is taken, since the number and not
// the text is signed here: "+1" or "01" would match the signature of "1".
func timestamp(header http.Header, name string) (int64, time.Time, error) {
	text, err := singleValue(header, name)
	if err != nil {
		return 0, time.Time{}, err
	}
	const maxDigits = 12 // far beyond any date, and within what a time.Time can hold
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || len(text) > maxDigits || seconds < 0 || strconv.FormatInt(seconds, 10) != text {
		return 0, time.Time{}, fmt.Errorf("%w: %s is not a time in Unix seconds", ErrMalformed, name)
	}
	return seconds, time.Unix(seconds, 0), nil
}

// hexSignatures returns the signature and, if it is there, that by the previous secret.
func hexSignatures(header http.Header, name string) ([]string, error) {
	current, err := hexSignature(header, name)
	if err != nil {
		return nil, err
	}
	previous, err := hexSignature(header, name+"-Previous")
	switch {
	case errors.Is(err, ErrMissing):
		return []string{current}, nil
	case err != nil:
		return nil, err
	}
	return []string{current, previous}, nil
}

// hexSignature returns the signature in a header. Upper-case digits are malformed: no sender writes them, and every bit
// of a signature should count.
func hexSignature(header http.Header, name string) (string, error) {
	text, err := singleValue(header, name)
	if err != nil {
		return "", err
	}
	if len(text) != hex.EncodedLen(sha256.Size) || strings.Trim(text, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%w: %s is not 64 lower-case hex digits", ErrMalformed, name)
	}
	return text, nil
}

// standardSignatures returns the v1 signatures of the space-separated list.
func standardSignatures(header http.Header) ([]string, error) {
	list, err := singleValue(header, signatureHeader)
	if err != nil {
		return nil, err
	}
	const maxSignatures = 16 // more than any rotation needs, and a bound on what a stranger can make us compare
	var signatures []string
	for part := range strings.SplitSeq(list, " ") {
		if strings.HasPrefix(part, standardVersion) {
			signatures = append(signatures, part)
		}
	}
	if len(signatures) == 0 || len(signatures) > maxSignatures {
		return nil, fmt.Errorf("%w: %s holds %d signatures of version v1", ErrMalformed, signatureHeader, len(signatures))
	}
	return signatures, nil
}
