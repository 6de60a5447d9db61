package server

import (
	"context"
	"net/http"
	"path/filepath"
	"time"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/backup"
)

// backupStore is what the endpoint of backups asks of the store.
type backupStore interface {
	// CreateBackup makes a copy of the database beside it, under a bare name, or a dated one where it is empty, and leaves
	// so many dated ones.
	CreateBackup(ctx context.Context, actor access.Actor, name string, keep int) (backup.Report, error)
}

// backupLimit bounds how long a copy may take, which is a second for some fifty megabytes.
const backupLimit = 30 * time.Minute

// maxKeep bounds how many copies can be asked to be left.
const maxKeep = 10_000

// backups is the endpoint that copies the database. Where to is not for a caller to say: it names a file at most.
type backups struct{ store backupStore }

type backupBody struct {
	File            string    `json:"file"` // its bare name: the directory is the operator's to know
	Bytes           int64     `json:"bytes"`
	SHA256          string    `json:"sha256"`
	DurationMS      int64     `json:"duration_ms"`
	EncryptionKeyID string    `json:"encryption_key_id"`
	CreatedAt       timestamp `json:"created_at"`
	Events          int64     `json:"events"`
	Deliveries      int64     `json:"deliveries"`
	Pending         int64     `json:"pending_deliveries"`
	Removed         []string  `json:"removed"`
	Warning         *string   `json:"warning"` // without a path, as File
}

func (h backups) create(c *call) error {
	f, err := c.optionalForm()
	if err != nil {
		return err
	}
	name, keep := f.Text("file", form.MaxName), f.Integer("keep", 1, maxKeep)
	if name != nil && !backup.ValidName(*name) {
		f.Refuse("file", "invalid", "This must be a bare name of letters, digits, dots, hyphens and underscores that ends in .db.")
	}
	if name != nil && keep != nil {
		f.Refuse("keep", "invalid", "Only dated copies are counted and removed, so this goes without file.")
	}
	if err := f.Err(); err != nil {
		return err
	}
	if name == nil {
		name = new(string)
	}
	if keep == nil {
		keep = new(int64)
	}
	ctx, cancel := context.WithTimeout(c.request.Context(), backupLimit)
	defer cancel()
	c.extendDeadlines(backupLimit + writeTimeout)
	r, err := h.store.CreateBackup(ctx, c.actor(), *name, int(*keep))
	if err != nil {
		return err
	}
	var warning *string
	if r.Warning != "" {
		text := "The copy is made, but older ones could not be removed. The log of the server says why."
		warning = &text
	}
	return c.write(http.StatusCreated, "application/json", backupBody{
		File: filepath.Base(r.File), Bytes: r.Bytes, SHA256: r.SHA256, DurationMS: r.Took.Milliseconds(), EncryptionKeyID: r.KeyID,
		CreatedAt: timestamp(r.CreatedAt), Events: r.Events, Deliveries: r.Deliveries, Pending: r.Pending,
		Removed: append([]string{}, r.Removed...), Warning: warning,
	})
}
