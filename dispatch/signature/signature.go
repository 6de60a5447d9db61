// Package signature owns the signatures of deliveries: how Keyhook makes them, and how a receiver checks them. It does not
// know subscriptions, queues or connections. It imports nothing else of Keyhook, so any receiver written in Go may use it.
//
// Every delivery is signed twice with the same secret. A receiver checks the scheme that it prefers:
//
//   - X-Service-Signature is the lower-case hex HMAC-SHA256 over "<timestamp>.<body>". The key is the whole text of the
//     secret, including "whsec_". X-Service-Timestamp contains the timestamp, in Unix seconds.
//   - webhook-signature is "v1," and the base64 HMAC-SHA256 over "<id>.<timestamp>.<body>", as Standard Webhooks defines it
//     (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md). The key is the decoded
//     text after "whsec_". A secret without "whsec_" is the key itself, which the libraries call a raw secret. webhook-id and
//     webhook-timestamp contain the other parts.
//
// The body is the exact bytes received. Decode the JSON after the check, and never check a body that was encoded again.
package signature

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Errors of this package wrap one of these, for errors.Is. Their text says more. It never contains a secret or the correct signature.
var (
	ErrSecret    = errors.New("the secret cannot be used")
	ErrMissing   = errors.New("a signature header is missing")
	ErrMalformed = errors.New("a signature header is malformed")
	ErrMismatch  = errors.New("the signature does not match, because the secret or the body is different")
	ErrTooOld    = errors.New("the signature is right, but its timestamp is too far in the past")
	ErrTooNew    = errors.New("the signature is right, but its timestamp is too far in the future")
)

var errEmpty = fmt.Errorf("%w: it is empty", ErrSecret)

const secretPrefix = "whsec_"

const standardVersion = "v1,"

// hexKeys returns the only key of the hex scheme: the whole text. It refuses an empty secret, because anybody could sign with it.
func hexKeys(secret string) ([][]byte, error) {
	if secret == "" {
		return nil, errEmpty
	}
	return [][]byte{[]byte(secret)}, nil
}

// standardKey returns the key of the Standard Webhooks scheme: the padded base64 after the prefix, or else the whole text.
func standardKey(secret string) (key []byte, err error) {
	encoded, found := strings.CutPrefix(secret, secretPrefix)
	if key = []byte(secret); found {
		key, err = base64.StdEncoding.Strict().DecodeString(encoded)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf(`%w: Standard Webhooks wants "whsec_" and padded base64`, ErrSecret)
	case len(key) == 0:
		return nil, errEmpty
	}
	return key, nil
}

// standardKeys returns the keys with which a signature of Standard Webhooks may be made. A receiver may have lost the prefix of
// its secret, as the reference libraries allow.
func standardKeys(secret string) ([][]byte, error) {
	key, err := standardKey(secret)
	keys := [][]byte{key}
	if bare, err := standardKey(secretPrefix + secret); err == nil {
		keys = append(keys, bare)
	}
	return keys, err
}
