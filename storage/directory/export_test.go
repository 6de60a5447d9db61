package directory

import (
	"context"
	"errors"
	"time"

	"github.com/keyhook/keyhook/storage/sqlite"
)

// ForgetPrincipals has all principals read again, by a write.
func (d *Directory) ForgetPrincipals(ctx context.Context) error {
	return d.file.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
		d.OutdatePrincipals(t)
		return nil
	})
}

// MoveUses changes when keys and tokens were last used, as a clock that was wrong does.
func (d *Directory) MoveUses(ctx context.Context, by time.Duration) error {
	return d.file.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
		err1 := t.Exec("UPDATE api_keys SET last_used_at = last_used_at + ?", by.Milliseconds())
		err2 := t.Exec("UPDATE access_tokens SET last_used_at = last_used_at + ?", by.Milliseconds())
		return errors.Join(err1, err2)
	})
}

// Sessions returns how many sessions are kept.
func (d *Directory) Sessions(ctx context.Context) (n int, err error) {
	return n, d.reads.In(ctx).Get(&n, "SELECT count(*) FROM sessions")
}

// Links returns how many sign-in links are kept.
func (d *Directory) Links(ctx context.Context) (n int, err error) {
	return n, d.reads.In(ctx).Get(&n, "SELECT count(*) FROM sign_in_links")
}

// MoveSessions changes the times of all sessions, as a clock that was wrong does.
func (d *Directory) MoveSessions(ctx context.Context, by time.Duration) error {
	return d.file.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
		d.OutdatePrincipals(t)
		return t.Exec("UPDATE sessions SET created_at = created_at + ?1, expires_at = expires_at + ?1", by.Milliseconds())
	})
}

// RunStatement runs a statement that returns no rows.
func (d *Directory) RunStatement(ctx context.Context, text string, args ...any) error {
	return d.file.Write(ctx, sqlite.Work{}, func(t *sqlite.Tx) error {
		return t.Exec(text, args...)
	})
}

// Columns are the columns of each type.
var Columns = struct{ Keys, Tokens, Users, Plans, Organizations string }{apiKeyColumns, selectTokens, userColumns, planColumns, organizationColumns}
