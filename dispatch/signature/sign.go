package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"strconv"
	"sync"
)

// Signer signs with one secret in both schemes. It computes the key schedules once, so a signature only hashes its message and
// allocates nothing. It is safe for concurrent use. Use NewSigner.
type Signer struct{ hex, standard macPool }

// NewSigner returns a signer for a secret of "whsec_" and padded base64, or for a text without "whsec_". Any other secret is ErrSecret.
func NewSigner(secret string) (*Signer, error) {
	key, err := standardKey(secret)
	if err != nil {
		return nil, err
	}
	return &Signer{hex: macPool{key: []byte(secret)}, standard: macPool{key: key}}, nil
}

// AppendHex appends the signature of body at timestamp, in Unix seconds, to dst: 64 lower-case hex digits.
func (s *Signer) AppendHex(dst []byte, timestamp int64, body []byte) []byte {
	m := s.hex.get()
	defer s.hex.put(m)
	head := append(strconv.AppendInt(m.scratch[:0], timestamp, 10), '.')
	return hex.AppendEncode(dst, m.sum(head, body))
}

// AppendStandard appends the signature of Standard Webhooks, of body with the message id and a timestamp in Unix seconds, to dst:
// "v1," and 44 characters of base64. Two signatures, in an overlap of two secrets, stand in one header, separated by a space. The
// id must not contain a dot, because a dot ends the id in the signed message.
func (s *Signer) AppendStandard(dst []byte, id string, timestamp int64, body []byte) []byte {
	m := s.standard.get()
	defer s.standard.put(m)
	head := append(append(m.scratch[:0], id...), '.')
	head = append(strconv.AppendInt(head, timestamp, 10), '.')
	return base64.StdEncoding.AppendEncode(append(dst, standardVersion...), m.sum(head, body))
}

// macPool keeps HMAC states of one key, as many as were ever used at once. A state cannot be shared, and making one
// hashes the key twice and allocates. A sync.Pool would drop them at every garbage collection.
type macPool struct {
	key  []byte
	mu   sync.Mutex
	free []*mac
}

func (p *macPool) get() *mac {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.free) - 1; last >= 0 {
		m := p.free[last]
		p.free = p.free[:last]
		return m
	}
	return &mac{Hash: hmac.New(sha256.New, p.key)}
}

func (p *macPool) put(m *mac) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, m)
}

// mac is an HMAC state with buffers for the head of the message and for the sum. Otherwise each of them would escape to the heap.
type mac struct {
	hash.Hash
	scratch [128]byte
}

// sum returns the HMAC of head followed by body. The next use of m overwrites it.
func (m *mac) sum(head, body []byte) []byte {
	m.Reset()
	m.Write(head)
	m.Write(body)
	return m.Sum(m.scratch[:0])
}
