package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/seal"
)

// RekeyOptions say which file gets which encryption key. OldKey and NewKey are texts as EncryptionKey is, and may be
// empty.
type RekeyOptions struct {
	Options
	OldKey string // opens too, beside EncryptionKey and the key file
	NewKey string // seals from now on; empty: EncryptionKey, and without that a key that is made in the key file
}

// Rekeyed is what Rekey has done.
type Rekeyed struct {
	KeyID      string   // of the key that all is sealed with now
	Before     []string // the ids of those it was sealed with; none where there was nothing left to do
	Secrets    int      // sealed anew, by this run
	Unreadable []string // ids of subscriptions with a secret that no key at hand opens, as before; to be rotated
	KeyFile    string   // where the key is, if it is in the key file and not in the operator's hands
	Aside      []string // files that hold the keys of before, which stood in the key file
}

// rekeying is a change of the key, and what it has found.
type rekeying struct {
	old, new string

	to     seal.Key
	file   keyFile
	stored []seal.Key // in the file
	inFile bool       // where the new key belongs
}

// rekeyBatch is how many subscriptions a transaction of Rekey seals anew.
const rekeyBatch = 100

// ErrNoDatabase is returned for work on a file that is not there.
var ErrNoDatabase = errors.New("there is no database")

// Rekey seals every signing secret with another encryption key. The file must have no owner: ErrInUse. It can be cut off
// at any moment and called again; until it has ended, Open wants both keys. What no key at hand opens is left as it is.
//
// The new key is on the disk before anything is sealed with it, and an old one leaves the key file only when nothing that
// can be opened needs it; then it is set aside, because backups of before do.
func Rekey(ctx context.Context, o RekeyOptions) (_ Rekeyed, err error) {
	r := &rekeying{old: o.OldKey, new: o.NewKey}
	o.rekeying = r
	// Before Open makes a lock file where there is nothing to lock.
	if size, err := fileSize(o.Path); err == nil && size == 0 {
		return Rekeyed{}, fmt.Errorf("%w at %s; set storage.path to the file whose key is to change", ErrNoDatabase, o.Path)
	}
	s, err := Open(ctx, o.Options)
	if err != nil {
		return Rekeyed{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.rekey(ctx, r)
}

// openRing finds the key that is to seal and all that may be needed to open. It writes nothing: whether the keys are the
// right ones is for the database to say.
func (r *rekeying) openRing(o Options, empty bool) (*seal.Ring, keyFile, error) {
	r.file = keyFile{name: o.Path + disk.Key}
	if empty {
		return nil, r.file, fmt.Errorf("%w at %s; set storage.path to the file whose key is to change", ErrNoDatabase, o.Path)
	}
	var err error
	if r.stored, err = r.file.read(); errors.Is(err, os.ErrNotExist) {
		r.file.fresh = true
		r.stored, err = r.file.read()
	}
	if errors.Is(err, os.ErrNotExist) {
		r.file.fresh, err = false, nil
	}
	if err != nil {
		return nil, r.file, err
	}
	known := slices.Clone(r.stored)
	parse := func(text, name string) (key seal.Key) {
		if text == "" || err != nil {
			return key
		}
		if key, err = seal.ParseKey(text); err != nil {
			err = fmt.Errorf("%w: %s: %w", ErrKey, name, err)
			return key
		}
		known = append(known, key)
		return key
	}
	old, configured := parse(r.old, "the old key"), parse(o.EncryptionKey, "encryption.key")
	wanted := parse(r.new, "the new key")
	if err == nil && len(known) == 0 {
		err = fmt.Errorf("%w: %s is gone and encryption.key is not set; name the file of the key that the database is sealed with: --old-key-file", ErrKeyMissing, r.file.name)
	}
	if err != nil {
		return nil, r.file, err
	}
	switch {
	case !wanted.IsZero():
		r.to = wanted
	case !configured.IsZero():
		r.to = configured
	case len(r.stored) > 1, len(r.stored) == 1 && !old.IsZero() && old.ID() != r.stored[0].ID():
		r.to, r.inFile = r.stored[0], true // made by a run that was cut off, or on purpose
	default:
		r.to, r.inFile = seal.NewKey(), true
	}
	return seal.NewRing(r.to, known...), r.file, nil
}

// rekey does what Rekey does once the file is open and known to be sealed with keys at hand.
func (s *Store) rekey(ctx context.Context, r *rekeying) (done Rekeyed, err error) {
	r.file.fresh = false // Open has given it its name
	done.KeyID = r.to.ID()
	if r.inFile {
		done.KeyFile = r.file.name
	}
	if done.Before, err = s.sealedBefore(); err != nil {
		return done, err
	}
	if len(done.Before) > 0 {
		if err := s.reseal(ctx, r, &done); err != nil {
			return done, err
		}
	}
	done.Aside, err = r.file.reduce(r.to)
	return done, err
}

// sealedBefore returns the ids of the keys, beside the one that seals, that may still have something sealed.
func (s *Store) sealedBefore() ([]string, error) {
	sealed, err := s.instance("canary")
	if err != nil {
		return nil, err
	}
	id, err := seal.KeyID(sealed)
	if err != nil {
		return nil, err
	}
	ids, err := s.changing()
	ids = append(ids, id)
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return id == s.ring.ActiveID() }), err
}
