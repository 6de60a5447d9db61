package platform

import (
	"net/http"
	"path/filepath"
	"time"

	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/clock"
)

type systemBody struct {
	Version    string        `json:"version"`
	Commit     string        `json:"commit"`
	CommitDate string        `json:"commit_date"`
	Go         string        `json:"go_version"`
	SQLite     string        `json:"sqlite_version"`
	StartedAt  exchange.Time `json:"started_at"`
	Uptime     int64         `json:"uptime_seconds"`
	Now        exchange.Time `json:"now"`
	Database   databaseBody  `json:"database"`
	Deliveries struct {
		Warning *string `json:"warning"` // null if deliveries are sent as they should
	} `json:"deliveries"`
	Clock struct {
		Trusted bool `json:"trusted"`
	} `json:"clock"`
}

type databaseBody struct {
	Path          string  `json:"path"`
	Bytes         int64   `json:"bytes"`
	LogBytes      int64   `json:"wal_bytes"`
	FreeBytes     *uint64 `json:"free_bytes"` // null if it is unknown
	SchemaVersion int64   `json:"schema_version"`
	Commits       int64   `json:"commits"`
	Synchronous   string  `json:"synchronous"`
}

// ReadSystem responds with the version, the database and the state of this process.
func (h *Endpoints) ReadSystem(x *exchange.Exchange) error {
	bytes, log, err := h.Store.Sizes()
	if err != nil {
		return err
	}
	database := databaseBody{
		Path: h.Store.Path(), Bytes: bytes, LogBytes: log, SchemaVersion: h.Store.SchemaVersion(), Commits: h.Store.Commits(),
		Synchronous: h.Store.Synchronous(),
	}
	if free, known := h.Store.Free(); known {
		database.FreeBytes = &free
	}
	warning, err := h.deliveries(x.Request.Context())
	if err != nil {
		warning = err.Error()
	}
	now := time.Now()
	body := systemBody{
		Version: h.build.Version, Commit: h.build.Commit, CommitDate: h.build.Date, Go: h.build.Go, SQLite: h.build.SQLite,
		StartedAt: exchange.Time(h.started.UnixMilli()), Uptime: int64(now.Sub(h.started) / time.Second), Now: exchange.Time(now.UnixMilli()),
		Database: database,
	}
	body.Deliveries.Warning, body.Clock.Trusted = access.NullIfEmpty(warning), h.Store.Clock().Trusted()
	return x.OK(body)
}

type clockBody struct {
	Now           exchange.Time  `json:"now"`
	Trusted       bool           `json:"trusted"`
	JumpSeconds   int64          `json:"jump_seconds"` // negative if the clock jumped back
	LastTrustedAt *exchange.Time `json:"last_trusted_at"`
	DoubtedSince  *exchange.Time `json:"doubted_since"`
	TrustedAgain  *exchange.Time `json:"trusted_again_at"`
	Warning       *string        `json:"warning"`
}

// ClockWarning tells an operator what a doubted clock means and what to do. It is empty if the clock is trusted.
func ClockWarning(s clock.State) string {
	if s.Trusted() {
		return ""
	}
	return s.Warning() + " " + "To start deleting at once, run: keyhook clock accept"
}

// ReadClock responds with the state of the clock.
func (h *Endpoints) ReadClock(x *exchange.Exchange) error {
	s := h.Store.Clock()
	body := clockBody{
		Now: exchange.Time(time.Now().UnixMilli()), Trusted: s.Trusted(), JumpSeconds: int64(s.Jump() / time.Second), Warning: access.NullIfEmpty(ClockWarning(s)),
	}
	if d := s.Doubt; d != nil {
		body.LastTrustedAt, body.DoubtedSince = new(exchange.Time(d.Trusted)), new(exchange.Time(d.Since))
		body.TrustedAgain = new(exchange.Time(s.TrustedAt()))
	}
	return x.OK(body)
}

// AcceptClock confirms the clock and responds with its new state.
func (h *Endpoints) AcceptClock(x *exchange.Exchange) error {
	if err := h.Store.AcceptClock(x.Request.Context(), x.Actor()); err != nil {
		return err
	}
	return h.ReadClock(x)
}

// backupLimit is how long a copy may take. A copy takes about a second per 50 MB.
const backupLimit = 30 * time.Minute

const maxKeep = 10_000

type backupBody struct {
	File            string        `json:"file"`
	Bytes           int64         `json:"bytes"`
	SHA256          string        `json:"sha256"`
	DurationMS      int64         `json:"duration_ms"`
	EncryptionKeyID string        `json:"encryption_key_id"`
	CreatedAt       exchange.Time `json:"created_at"`
	Events          int64         `json:"events"`
	Deliveries      int64         `json:"deliveries"`
	Pending         int64         `json:"pending_deliveries"`
	Removed         []string      `json:"removed"`
	Warning         *string       `json:"warning"`
}

// CreateBackup copies the database and responds with a report.
func (h *Endpoints) CreateBackup(x *exchange.Exchange) error {
	f := x.OptionalForm()
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
	r, err := h.Store.CreateBackup(ctx, x.Actor(), form.Or(name, ""), int(form.Or(keep, 0)))
	if err != nil {
		return err
	}
	if r.Warning != "" { // no response shows a path
		r.Warning = "The copy was made, but the server log has a warning about it."
	}
	return x.Respond(http.StatusCreated, backupBody{
		File: filepath.Base(r.File), Bytes: r.Bytes, SHA256: r.SHA256, DurationMS: r.Took.Milliseconds(), EncryptionKeyID: r.KeyID,
		CreatedAt: exchange.Time(r.CreatedAt), Events: r.Events, Deliveries: r.Deliveries, Pending: r.Pending,
		Removed: append([]string{}, r.Removed...), Warning: access.NullIfEmpty(r.Warning),
	})
}
