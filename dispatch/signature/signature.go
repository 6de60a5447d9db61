// Package signature owns the signatures on deliveries: how they are made, and how a receiver checks them. It knows
// nothing of subscriptions, queues or connections, imports nothing else of Keyhook, and may be used by any receiver that
// is written in Go.
//
// Every delivery is signed twice with the same secret, and a receiver checks whichever it prefers:
//
//   - X-Service-Signature is the lower-case hex HMAC-SHA256 over "<timestamp>.<body>". The key is the whole text of the
//     secret, "whsec_" included. X-Service-Timestamp holds the timestamp, in Unix seconds.
//   - webhook-signature is "v1," and the base64 HMAC-SHA256 over "<id>.<timestamp>.<body>", as Standard Webhooks has it
//     (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md). The key is what
//     the text after "whsec_" decodes to. webhook-id and webhook-timestamp hold the rest.
//
// The body is the exact bytes received: decode the JSON after the check, and never check what was encoded again.
package signature

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// What can be wrong with a signature or a secret. Errors of this package wrap one of these, for errors.Is, and their
// text says more. None of them holds a secret or the signature that would have been right.
var (
	ErrSecret    = errors.New("the secret cannot be used")
	ErrMissing   = errors.New("a signature header is missing")
	ErrMalformed = errors.New("a signature header is malformed")
	ErrMismatch  = errors.New("the signature does not match: another secret, or another body than the one signed")
	ErrTooOld    = errors.New("the signature is right, but its timestamp is too far in the past")
	ErrTooNew    = errors.New("the signature is right, but its timestamp is too far in the future")
)

// secretPrefix begins a secret of Standard Webhooks.
const secretPrefix = "whsec_"

// standardVersion begins a symmetric signature of Standard Webhooks.
const standardVersion = "v1,"

// hexKey returns the key of the hex scheme: the whole text. An empty one is refused, because anybody could sign with it.
func hexKey(secret string) ([]byte, error) {
	if secret == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrSecret)
	}
	return []byte(secret), nil
}

// standardKey returns the key of the Standard Webhooks scheme: the padded base64 after the prefix, which may be left
// out, as in the reference libraries.
func standardKey(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.Strict().DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil {
		return nil, fmt.Errorf(`%w: Standard Webhooks wants "whsec_" and padded base64`, ErrSecret)
	}
	if len(key) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrSecret)
	}
	return key, nil
}
