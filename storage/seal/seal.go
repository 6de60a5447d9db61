// Package seal owns the encryption of signing secrets and request headers in the database: keys, rings of keys, and the form of a
// sealed text. It does not know subscriptions or files: the caller passes a name for the owner of a text, and stores the keys.
//
// A sealed text is ASCII:
//
//	v1.<key id>.<base64url of nonce, ciphertext and tag>
//
// It is AES-256-GCM with a random nonce (NIST SP 800-38D, section 8.2.2). The key is derived from the operator's key by
// HKDF-SHA256 (RFC 5869). So another use of the operator's key reveals nothing about the derived key. Version, key id and the
// caller's name are associated data. So a text does not open in another row or with another label.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// The reasons why a text cannot be opened.
var (
	ErrDamaged    = errors.New("the sealed text is damaged, or belongs to another row")
	ErrVersion    = errors.New("the sealed text has a format that this version of Keyhook does not know")
	ErrUnknownKey = errors.New("the text was sealed with an encryption key that is not at hand") // wrapped with the id of the key
)

const (
	version = "v1"
	idSize  = 8
	info    = "keyhook seal v1" // of the key derivation; another text gives another key
)

// encoding is strict, so a ciphertext has only one text, and no changed bit goes unnoticed.
var encoding = base64.RawURLEncoding.Strict()

// Ring seals with its first key and opens with all its keys. It never changes, and is safe for concurrent use.
type Ring struct {
	keys []ringKey
}

type ringKey struct {
	id   string
	aead cipher.AEAD
}

// NewRing makes a ring that seals with active, and also opens texts that the older keys have sealed. It panics for a zero
// key, which ParseKey and NewKey never return.
func NewRing(active Key, older ...Key) *Ring {
	r := &Ring{keys: []ringKey{newRingKey(active)}}
	for _, k := range older {
		r.keys = append(r.keys, newRingKey(k))
	}
	return r
}

// newRingKey derives the key that encrypts. No step can fail for a key of this size.
func newRingKey(k Key) ringKey {
	derived := must(hkdf.Key(sha256.New, k.bytes(), nil, info, keySize))
	return ringKey{k.ID(), must(cipher.NewGCMWithRandomNonce(must(aes.NewCipher(derived))))}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// Seal encrypts plaintext. associated names its owner, and only Open with the same name returns the plaintext. Sealing one
// plaintext twice gives two texts. One key may seal 2^32 texts.
func (r *Ring) Seal(plaintext []byte, associated string) []byte {
	active := r.keys[0]
	ciphertext := active.aead.Seal(nil, nil, plaintext, associatedData(active.id, associated))
	return encoding.AppendEncode(associatedData(active.id, ""), ciphertext)
}

// Open decrypts a text that Seal returned for the same associated name. The error is or wraps ErrUnknownKey, ErrVersion or
// ErrDamaged. It has no part of the text, except the id of its key.
func (r *Ring) Open(sealed []byte, associated string) ([]byte, error) {
	id, encoded, err := split(sealed)
	if err != nil {
		return nil, err
	}
	ciphertext, err := encoding.AppendDecode(nil, encoded)
	if err != nil || bytes.ContainsAny(encoded, "\r\n") { // decoding skips line breaks
		return nil, fmt.Errorf("%w: not base64", ErrDamaged)
	}
	known := false
	for _, k := range r.keys { // ids are short, so two keys may have the same id
		if k.id != id {
			continue
		}
		known = true
		if plaintext, err := k.aead.Open(nil, nil, ciphertext, associatedData(id, associated)); err == nil {
			return plaintext, nil
		}
	}
	if !known {
		return nil, fmt.Errorf("%w: %s", ErrUnknownKey, id)
	}
	return nil, ErrDamaged
}

// KeyID returns the id of the key of a sealed text, without opening it. The error wraps ErrVersion or ErrDamaged.
func KeyID(sealed []byte) (string, error) {
	id, _, err := split(sealed)
	return id, err
}

// split splits a sealed text and checks the form of its parts.
func split(sealed []byte) (id string, encoded []byte, err error) {
	head, rest, _ := bytes.Cut(sealed, []byte("."))
	if string(head) != version {
		if len(head) > 1 && head[0] == 'v' && strings.Trim(string(head[1:]), "0123456789") == "" {
			return "", nil, ErrVersion
		}
		return "", nil, fmt.Errorf("%w: it does not begin with a version", ErrDamaged)
	}
	first, encoded, found := bytes.Cut(rest, []byte("."))
	id = string(first)
	if !found || len(id) != idSize || strings.Trim(id, "0123456789abcdef") != "" {
		return "", nil, fmt.Errorf("%w: it has no key id", ErrDamaged)
	}
	return id, encoded, nil
}

// associatedData returns the associated data. It begins as a sealed text does. The first two parts have a fixed form, so different
// parts give different bytes.
func associatedData(id, associated string) []byte {
	return []byte(version + "." + id + "." + associated)
}
