package platform

import (
	"context"
	"net/http"
	"path/filepath"
	"time"

	"github.com/keyhook/keyhook/server/build"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/clock"
)

// systemStore is the part of the store that the system endpoint uses.
type systemStore interface {
	// Path returns the name of the database.
	Path() string
	// Sizes returns the bytes of the database and of its write-ahead log.
	Sizes() (database, log int64, err error)
	// Free returns the free bytes of the disk, if they are known.
	Free() (bytes uint64, ok bool)
	SchemaVersion() int64
	// Commits returns the number of transactions since the start.
	Commits() int64
	// Synchronous returns the level of durability.
	Synchronous() string
	Clock() clock.State
}

// System is the endpoint that describes this process and its database.
type System struct {
	store      systemStore
	build      build.Info
	started    time.Time
	deliveries func(context.Context) (warning string, err error) // whether deliveries are sent, as /readyz says it
}

type systemBody struct {
	Version    string         `json:"version"`
	Commit     string         `json:"commit"`
	CommitDate string         `json:"commit_date"`
	Go         string         `json:"go_version"`
	SQLite     string         `json:"sqlite_version"`
	StartedAt  exchange.Time  `json:"started_at"`
	Uptime     int64          `json:"uptime_seconds"`
	Now        exchange.Time  `json:"now"`
	Database   databaseBody   `json:"database"`
	Deliveries deliveringBody `json:"deliveries"`
	Clock      trustBody      `json:"clock"`
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

type deliveringBody struct {
	Warning *string `json:"warning"` // null if deliveries are sent as they should
}

type trustBody struct {
	Trusted bool `json:"trusted"`
}

// Read responds with the version, the database and the state of this process.
func (h System) Read(x *exchange.Exchange) error {
	bytes, log, err := h.store.Sizes()
	if err != nil {
		return err
	}
	database := databaseBody{
		Path: h.store.Path(), Bytes: bytes, LogBytes: log, SchemaVersion: h.store.SchemaVersion(), Commits: h.store.Commits(),
		Synchronous: h.store.Synchronous(),
	}
	if free, known := h.store.Free(); known {
		database.FreeBytes = &free
	}
	warning, err := h.deliveries(x.Request.Context())
	if err != nil {
		warning = err.Error()
	}
	now := time.Now()
	return x.OK(systemBody{
		Version: h.build.Version, Commit: h.build.Commit, CommitDate: h.build.Date, Go: h.build.Go, SQLite: h.build.SQLite,
		StartedAt: exchange.Time(h.started.UnixMilli()), Uptime: int64(now.Sub(h.started) / time.Second), Now: exchange.Time(now.UnixMilli()),
		Database: database, Deliveries: deliveringBody{exchange.NullIfEmpty(warning)}, Clock: trustBody{h.store.Clock().Trusted()},
	})
}

// clockStore is the part of the store that the clock endpoints use.
type clockStore interface {
	// Clock returns the state of the wall clock.
	Clock() clock.State
	// AcceptClock confirms that the clock is right.
	AcceptClock(ctx context.Context, actor access.Actor) error
}

// Clock are the endpoints of the server's clock.
type Clock struct{ store clockStore }

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

func newClockBody(s clock.State) clockBody {
	body := clockBody{
		Now: exchange.Time(time.Now().UnixMilli()), Trusted: s.Trusted(), JumpSeconds: int64(s.Jump() / time.Second), Warning: exchange.NullIfEmpty(ClockWarning(s)),
	}
	if d := s.Doubt; d != nil {
		body.LastTrustedAt, body.DoubtedSince = new(exchange.Time(d.Trusted)), new(exchange.Time(d.Since))
		body.TrustedAgain = new(exchange.Time(s.TrustedAt()))
	}
	return body
}

// Read responds with the state of the clock.
func (h Clock) Read(x *exchange.Exchange) error { return x.OK(newClockBody(h.store.Clock())) }

// Accept confirms the clock and responds with its new state.
func (h Clock) Accept(x *exchange.Exchange) error {
	if err := h.store.AcceptClock(x.Request.Context(), x.Actor()); err != nil {
		return err
	}
	return h.Read(x)
}

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
	r, err := h.store.CreateBackup(ctx, x.Actor(), form.Or(name, ""), int(form.Or(keep, 0)))
	if err != nil {
		return err
	}
	var warning *string
	if r.Warning != "" {
		warning = new("The copy was made, but older copies could not be removed. See the server log for the cause.")
	}
	return x.Respond(http.StatusCreated, backupBody{
		File: filepath.Base(r.File), Bytes: r.Bytes, SHA256: r.SHA256, DurationMS: r.Took.Milliseconds(), EncryptionKeyID: r.KeyID,
		CreatedAt: exchange.Time(r.CreatedAt), Events: r.Events, Deliveries: r.Deliveries, Pending: r.Pending,
		Removed: append([]string{}, r.Removed...), Warning: warning,
	})
}
