package cli

import (
	"errors"
	"log/slog"
	"time"

	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/fault"
)

// mends is the one table from what ended a command to what an operator can do about it, in terms of flags and commands, which
// the store does not know. It is for errors without a mend of their own.
var mends = []struct {
	is   error
	mend string
}{
	{storage.ErrExists, "name another file, or replace it with --force"},                                    // of backup
	{storage.ErrKeyMissing, "name the file of the key that the database is sealed with by --" + flagOldKey}, // of rekey
}

// withMend adds the mend of the table to an error that has none.
func withMend(err error) error {
	for _, m := range mends {
		if errors.Is(err, m.is) {
			return fault.AdviseMissing(err, "%s", m.mend)
		}
	}
	return err
}

// LogNotices logs what an operator must know about a store that was just opened, and what to do about it.
func LogNotices(log *slog.Logger, store *storage.Store) {
	if hold := store.Held(); hold != nil {
		log.Warn("nothing is sent: the queue is held; look at it with `keyhook queue show`, then run `keyhook queue release` or `keyhook queue discard`",
			"since", time.UnixMilli(hold.Since).UTC(), "reason", hold.Reason)
	}
	if store.BootstrapRefused() {
		log.Warn("bootstrap.token is not a valid access token: it was revoked, or it was set after the first authenticated request; " +
			"create a token with `keyhook token create`")
	}
}
