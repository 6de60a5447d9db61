package directory

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/sqlite"
)

const (
	// noteEvery is the shortest time, in milliseconds, between two writes of the use of one credential. KeepUses may be called up to
	// 10 s later. So a crash loses less than a minute.
	noteEvery = int64(48 * time.Second / time.Millisecond)

	// notesPerWrite bounds the notes of one transaction, so that other writes wait less.
	notesPerWrite = 500

	useShards = 16 // a power of two

	dayLength = 86_400_000 // milliseconds
)

// credentialUses remembers in memory how credentials were used, so that no request waits for a write. The zero value is empty.
type credentialUses struct {
	keeping sync.Mutex // of KeepUses
	shards  [useShards]struct {
		mu      sync.Mutex
		noted   map[credentialDay]credentialUse
		written map[credentialDay]int64 // when a use was last taken to be written, less than noteEvery ago; the day is 0
	}
}

// credentialDay is a credential in a UTC day, in days since the epoch by the wall clock.
type credentialDay struct {
	row   int64
	token bool
	day   int64
}

type credentialUse struct {
	credentialDay
	at int64 // the last use, in milliseconds
	access.KeyUse
}

// Used notes a request with p's credential, and what its checks decided. It does not block: KeepUses writes the time and the counts, about
// once a minute per credential. After the first call for any principal, no start creates a bootstrap token; see EnsureBootstrapToken.
func (d *Directory) Used(p access.Principal, use access.KeyUse) {
	if !d.firstRequest.Load() { // only the first request writes it, because all requests share it
		d.firstRequest.Store(true)
	}
	at := d.file.Now()
	switch {
	case p.Key != nil:
		d.uses.note(credentialUse{credentialDay{p.Key.RowID, false, at / dayLength}, at, use})
	case p.Token != nil:
		d.uses.note(credentialUse{credentialDay{p.Token.RowID, true, at / dayLength}, at, access.KeyUse{}})
	}
}

func (u *credentialUses) note(use credentialUse) {
	shard := &u.shards[use.row%useShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.noted == nil {
		shard.noted, shard.written = map[credentialDay]credentialUse{}, map[credentialDay]int64{}
	}
	noted := shard.noted[use.credentialDay]
	use.at = max(use.at, noted.at)
	use.Add(noted.KeyUse)
	shard.noted[use.credentialDay] = use
}

// take removes and returns the notes to write: of credentials of which none was taken within noteEvery, or of all credentials.
func (u *credentialUses) take(now int64, all bool) (notes []credentialUse) {
	for i := range u.shards {
		shard := &u.shards[i]
		shard.mu.Lock()
		for c, at := range shard.written {
			if all || now-at >= noteEvery || now < at {
				delete(shard.written, c)
			}
		}
		for day, use := range shard.noted {
			c := day
			c.day = 0
			if at, lately := shard.written[c]; !lately || at == now {
				notes, shard.written[c] = append(notes, use), now
				delete(shard.noted, day)
			}
		}
		shard.mu.Unlock()
	}
	slices.SortFunc(notes, func(a, b credentialUse) int { return cmp.Compare(a.at, b.at) }) // of two days of one credential, the later is the last
	return notes
}

// KeepUses writes how credentials were used. The owner of the file calls it from time to time, and with all at its end. What cannot be
// written is noted again, for a later write. The end of ctx does not stop the write: it might succeed unseen, and the next one would
// count the same requests again. When it returns nil, all that it had to write is in the file, also what a call beside it has taken.
func (d *Directory) KeepUses(ctx context.Context, all bool) (err error) {
	d.uses.keeping.Lock()
	defer d.uses.keeping.Unlock()
	for notes := range slices.Chunk(d.uses.take(time.Now().UnixMilli(), all), notesPerWrite) {
		if err == nil {
			err = d.file.Write(context.WithoutCancel(ctx), sqlite.Work{Cost: 2 * len(notes)}, func(t *sqlite.Tx) error { return writeUses(t, notes) })
		}
		for i := 0; err != nil && i < len(notes); i++ {
			d.uses.note(notes[i])
		}
	}
	return err
}

// writeUses writes uses that are later than those in the file, and adds the counts. It also replaces times from the future: the clock was
// ahead then.
func writeUses(t *sqlite.Tx, notes []credentialUse) error {
	for _, n := range notes {
		table := "api_keys"
		if n.token {
			table = "access_tokens"
		}
		if err := t.Exec("UPDATE "+table+" SET last_used_at = ?1 WHERE id = ?2 AND coalesce(last_used_at, 0) NOT BETWEEN ?1 AND ?1 + ?3",
			n.at, n.row, clock.Tolerance.Milliseconds()); err != nil {
			return err
		}
		if n.KeyUse == (access.KeyUse{}) {
			continue
		}
		if err := t.Exec(`
			INSERT INTO key_days (key_id, day, allowed, rate_limited, forbidden) SELECT id, ?2, ?3, ?4, ?5 FROM api_keys WHERE id = ?1
			ON CONFLICT (key_id, day) DO UPDATE SET allowed = allowed + excluded.allowed,
				rate_limited = rate_limited + excluded.rate_limited, forbidden = forbidden + excluded.forbidden`,
			n.row, n.day, n.Allowed, n.RateLimited, n.Forbidden); err != nil {
			return err
		}
	}
	return nil
}
