package diagnosis

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"slices"
)

// method makes the bytes of a signature.
type method func(key []byte, m message, body []byte) []byte

const methodAdvice = "The method is HMAC with SHA-256, as crypto/hmac in Go, crypto.createHmac('sha256', key) in Node and hmac.new(key, message, 'sha256') in Python have it."

// methods is what else people compute, as far as the length of a given signature allows it.
func methods(given []written) []choice[method] {
	all := []choice[method]{
		{value: hmacSHA256},
		wrong(method(func(key []byte, m message, body []byte) []byte {
			return hmacSHA256(m.text(body), message{}, key)
		}), "key_and_message_swapped", "The message was taken for the key, and the key for the message.",
			"Look up the order of the arguments: PHP's hash_hmac wants the message first, Python's hmac.new the key."),
		wrong(method(func(key []byte, m message, body []byte) []byte {
			return plain(key, m.text(body))
		}), "not_hmac", "The signature is a plain SHA-256 over the key and the message, not an HMAC.", methodAdvice),
		wrong(method(func(key []byte, m message, body []byte) []byte {
			return plain(m.text(body), key)
		}), "not_hmac", "The signature is a plain SHA-256 over the message and the key, not an HMAC.", methodAdvice),
	}
	for _, other := range []struct {
		name string
		hash func() hash.Hash
	}{{"SHA-1", sha1.New}, {"SHA-512", sha512.New}, {"MD5", md5.New}} {
		fits := func(w written) bool { return len(w.sum) == other.hash().Size() }
		if slices.ContainsFunc(given, fits) {
			all = append(all, wrong(hmacOf(other.hash), "wrong_hash", "The signature is an HMAC with "+other.name+".", methodAdvice))
		}
	}
	return all
}

func hmacSHA256(key []byte, m message, body []byte) []byte { return hmacOf(sha256.New)(key, m, body) }

func hmacOf(sum func() hash.Hash) method {
	return func(key []byte, m message, body []byte) []byte {
		mac := hmac.New(sum, key)
		mac.Write([]byte(m.head))
		if !m.bodyless {
			mac.Write(body)
		}
		mac.Write([]byte(m.tail))
		return mac.Sum(nil)
	}
}

func plain(parts ...[]byte) []byte {
	h := sha256.New()
	for _, part := range parts {
		h.Write(part)
	}
	return h.Sum(nil)
}
