package platform

import (
	"context"
	"time"

	"github.com/keyhook/keyhook/server/build"
	"github.com/keyhook/keyhook/server/exchange"
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
	Go         string         `json:"go_version"`
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
		Version: h.build.Version, Commit: h.build.Revision, Go: h.build.Go,
		StartedAt: exchange.Time(h.started.UnixMilli()), Uptime: int64(now.Sub(h.started) / time.Second), Now: exchange.Time(now.UnixMilli()),
		Database: database, Deliveries: deliveringBody{exchange.NullIfEmpty(warning)}, Clock: trustBody{h.store.Clock().Trusted()},
	})
}
