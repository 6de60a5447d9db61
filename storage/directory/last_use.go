package directory

import (
	"context"
	"sync"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/sqlite"
)

const (
	// noteEvery is how often, in milliseconds, the last use of one credential is written at most.
	noteEvery = int64(time.Minute / time.Millisecond)

	// notesPerWrite bounds a transaction of notes, so that the writes of others do not wait behind all of them.
	notesPerWrite = 500

	useShards = 16 // a power of two
)

// lastUses remembers which credentials were used since they were last written, so that no request waits for that. The zero
// value is empty.
type lastUses [useShards]struct {
	mu      sync.Mutex
	noted   map[credentialRow]int64 // the last use
	written map[credentialRow]int64 // when it was last written, less than noteEvery ago
}

// credentialRow names an API key, or an access token.
type credentialRow struct {
	row   int64
	token bool
}

// use is a credential and when it was last used.
type use struct {
	credentialRow
	at int64
}

// Used notes that a request was made with p's credential. It does not block; upkeep writes the last use down, at most
// once a minute per credential. Any principal ends the making of tokens at starts; see Invite.
func (d *Directory) Used(p access.Principal) {
	d.firstRequest.note()
	at := time.Now().UnixMilli()
	switch {
	case p.Key != nil:
		d.lastUses.note(use{credentialRow{row: p.Key.RowID}, at})
	case p.Token != nil:
		d.lastUses.note(use{credentialRow{row: p.Token.RowID, token: true}, at})
	}
}

func (u *lastUses) note(n use) {
	shard := &u[n.row%useShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.noted == nil {
		shard.noted, shard.written = map[credentialRow]int64{}, map[credentialRow]int64{}
	}
	shard.noted[n.credentialRow] = max(shard.noted[n.credentialRow], n.at)
}

// due returns the notes of credentials that were not written within the last minute.
func (u *lastUses) due(now int64) []use {
	var due []use
	for i := range u {
		shard := &u[i]
		shard.mu.Lock()
		for c, at := range shard.written {
			if now-at >= noteEvery || now < at {
				delete(shard.written, c)
			}
		}
		for c, at := range shard.noted {
			if _, lately := shard.written[c]; !lately {
				due = append(due, use{c, at})
			}
		}
		shard.mu.Unlock()
	}
	return due
}

// settle forgets notes that have been written, unless the credential has been used again.
func (u *lastUses) settle(notes []use, now int64) {
	for _, n := range notes {
		shard := &u[n.row%useShards]
		shard.mu.Lock()
		shard.written[n.credentialRow] = now
		if shard.noted[n.credentialRow] == n.at {
			delete(shard.noted, n.credentialRow)
		}
		shard.mu.Unlock()
	}
}

// KeepLastUses writes when credentials were last used.
func (d *Directory) KeepLastUses(ctx context.Context) error {
	now := time.Now().UnixMilli()
	due := d.lastUses.due(now)
	for len(due) > 0 {
		notes := due[:min(len(due), notesPerWrite)]
		if err := d.change(ctx, sqlite.Work{}, func(t *sqlite.Tx) error { return writeLastUses(t, notes) }); err != nil {
			return err
		}
		d.lastUses.settle(notes, now)
		due = due[len(notes):]
	}
	return nil
}

// writeLastUses writes a use that is later than the one written before. A time from the future comes from a clock that was
// ahead, and is replaced too.
func writeLastUses(t *sqlite.Tx, notes []use) error {
	for _, n := range notes {
		statement := "UPDATE api_keys SET last_used_at = ?1 WHERE id = ?2 AND coalesce(last_used_at, 0) NOT BETWEEN ?1 AND ?1 + ?3"
		if n.token {
			statement = "UPDATE access_tokens SET last_used_at = ?1 WHERE id = ?2 AND coalesce(last_used_at, 0) NOT BETWEEN ?1 AND ?1 + ?3"
		}
		if _, err := t.Exec(statement, n.at, n.row, clock.Tolerance.Milliseconds()); err != nil {
			return err
		}
	}
	return nil
}
