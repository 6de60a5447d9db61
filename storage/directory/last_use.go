package directory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/clock"
	"github.com/keyhook/keyhook/storage/sqlite"
)

const (
	// noteEvery is the shortest time, in milliseconds, between two writes of the last use of one credential.
	noteEvery = int64(time.Minute / time.Millisecond)

	// notesPerWrite bounds the notes of one transaction, so that other writes wait less.
	notesPerWrite = 500

	useShards = 16 // a power of two
)

// lastUses remembers in memory when credentials were last used, so that no request waits for a write. The zero value is empty.
type lastUses [useShards]struct {
	mu      sync.Mutex
	noted   map[credentialRow]int64 // the last use
	written map[credentialRow]int64 // when it was last written, less than noteEvery ago
}

// credentialRow is the row of an API key or of an access token.
type credentialRow struct {
	row   int64
	token bool
}

// use is a credential and the time of its last use.
type use struct {
	credentialRow
	at int64
}

// Used notes a request with p's credential. It does not block: KeepLastUses writes the time, at most once a minute per
// credential. After the first call for any principal, no start creates a bootstrap token; see EnsureBootstrapToken.
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

// settle forgets the notes that were written, unless the credential was used again.
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

// KeepLastUses writes when credentials were last used. The owner of the file calls it from time to time.
func (d *Directory) KeepLastUses(ctx context.Context) error {
	now := time.Now().UnixMilli()
	for notes := range slices.Chunk(d.lastUses.due(now), notesPerWrite) {
		if err := d.change(ctx, sqlite.Work{Cost: len(notes)}, func(t *sqlite.Tx) error { return writeLastUses(t, notes) }); err != nil {
			return err
		}
		d.lastUses.settle(notes, now)
	}
	return nil
}

// writeLastUses writes uses that are later than those in the file. It also replaces times from the future: the clock was ahead
// then.
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
