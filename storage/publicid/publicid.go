// Package publicid owns the public ids of rows: it makes and reads them. It knows no table.
package publicid

import (
	"crypto/sha256"
	"encoding/binary"

	"go.jetify.com/typeid"

	"github.com/keyhook/keyhook/storage/access"
)

// New makes a random public id: a TypeID over a UUIDv7.
func New(t access.IDType) string { return typeid.Must(typeid.WithPrefix(string(t))).String() }

// WhereNamed ends a statement that looks for the organization or the user that a caller names, by its id or by its external id. No
// external id has the form of an id, so a text names at most one row. Every text of a caller is looked up with this function.
func WhereNamed(sort access.IDType, text string) string {
	if sort.Valid(text) {
		return " WHERE public_id = ?"
	}
	return " WHERE external_id = ?"
}

// Maker computes the public ids of the append-only tables from columns that a row has anyway. So these tables need no index of random text.
//
// An id is a TypeID over a UUIDv7 (RFC 9562 section 5.7): its 48 bits of time are the time of the row, and its last 62
// bits are the row id XOR a mask. The mask depends on the instance's salt, the type and the time. Without the mask, a customer
// could compute from two ids how many rows other customers have. No other protection depends on the mask.
type Maker struct {
	Salt []byte // of the instance
}

const tailMask = 1<<62 - 1

// ID returns the public id of the row with that time in milliseconds.
func (m Maker) ID(t access.IDType, row, at int64) string {
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], uint64(at)<<16|0x7000)
	binary.BigEndian.PutUint64(u[8:], m.mask(t, at)^uint64(row)&tailMask|1<<63)
	return typeid.Must(typeid.FromUUIDBytesWithPrefix(string(t), u[:])).String()
}

// Row returns the row id and the time behind a public id. If the row does not exist or has another time, Keyhook did not make the id.
func (m Maker) Row(t access.IDType, id string) (row, at int64, ok bool) {
	parsed, err := typeid.FromString(id)
	if err != nil || parsed.Prefix() != string(t) {
		return 0, 0, false
	}
	u := parsed.UUIDBytes()
	head, tail := binary.BigEndian.Uint64(u[:8]), binary.BigEndian.Uint64(u[8:])
	at = int64(head >> 16)
	if head&0xffff != 0x7000 || tail>>62 != 0b10 {
		return 0, 0, false
	}
	return int64(tail&tailMask ^ m.mask(t, at)), at, true
}

func (m Maker) mask(t access.IDType, at int64) uint64 {
	var buffer [64]byte
	b := append(buffer[:0], m.Salt...)
	b = append(b, t...)
	b = binary.BigEndian.AppendUint64(b, uint64(at))
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:8]) & tailMask
}
