package platform

import (
	"context"
	"net/http"
	"path/filepath"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/backup"
)

// backupStore is the part of the store that the backup endpoint uses.
type backupStore interface {
	// CreateBackup copies the database into a file beside it. If name is empty, the name is a date, and older dated copies
	// are removed until keep remain.
	CreateBackup(ctx context.Context, actor access.Actor, name string, keep int) (backup.Report, error)
}

// backupLimit is how long a copy may take. A copy takes about a second per 50 MB.
const backupLimit = 30 * time.Minute

// maxKeep is the largest number of copies to keep.
const maxKeep = 10_000

// Backups is the endpoint that copies the database. A caller chooses the name of the file, never its directory.
type Backups struct{ store backupStore }

type backupBody struct {
	File            string        `json:"file"` // its name; the directory is not shown
	Bytes           int64         `json:"bytes"`
	SHA256          string        `json:"sha256"`
	DurationMS      int64         `json:"duration_ms"`
	EncryptionKeyID string        `json:"encryption_key_id"`
	CreatedAt       exchange.Time `json:"created_at"`
	Events          int64         `json:"events"`
	Deliveries      int64         `json:"deliveries"`
	Pending         int64         `json:"pending_deliveries"`
	Removed         []string      `json:"removed"`
	Warning         *string       `json:"warning"` // shows no path, like File
}

// Create copies the database and responds with a report.
func (h Backups) Create(x *exchange.Exchange) error {
	f, err := x.OptionalForm()
	if err != nil {
		return err
	}
	name, keep := f.Text("file", form.MaxName), f.Integer("keep", 1, maxKeep)
	if name != nil && !backup.ValidName(*name) {
		f.Refuse("file", "invalid", "This must be a file name without a directory: letters, digits, dots, hyphens and underscores, ending in .db.")
	}
	if name != nil && keep != nil {
		f.Refuse("keep", "invalid", "keep counts dated copies only; leave out file or keep.")
	}
	if err := f.Err(); err != nil {
		return err
	}
	ctx, cancel := x.LongContext(backupLimit)
	defer cancel()
	r, err := h.store.CreateBackup(ctx, x.Actor(), form.Or(name, ""), int(form.Or(keep, 0)))
	if err != nil {
		return err
	}
	var warning *string
	if r.Warning != "" {
		text := "The copy was made, but older copies could not be removed. See the server log for the cause."
		warning = &text
	}
	return x.Respond(http.StatusCreated, backupBody{
		File: filepath.Base(r.File), Bytes: r.Bytes, SHA256: r.SHA256, DurationMS: r.Took.Milliseconds(), EncryptionKeyID: r.KeyID,
		CreatedAt: exchange.Time(r.CreatedAt), Events: r.Events, Deliveries: r.Deliveries, Pending: r.Pending,
		Removed: append([]string{}, r.Removed...), Warning: warning,
	})
}
