package storage

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jmoiron/sqlx"

	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/encryption"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/queue"
	"github.com/keyhook/keyhook/storage/seal"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/sqlite/ownership"
)

// The reasons why a database cannot be opened, copied, restored or used. Each error is wrapped with advice on what to do.
var (
	ErrInUse       = ownership.ErrInUse
	ErrNewerSchema = sqlite.ErrNewerSchema
	ErrSchema      = sqlite.ErrSchema
	ErrForeignFile = sqlite.ErrForeignFile
	ErrNoFile      = sqlite.ErrNoFile
	ErrDamaged     = sqlite.ErrDamaged
	ErrExists      = backup.ErrExists
	ErrFailed      = sqlite.ErrFailed

	ErrKey        = encryption.ErrKey
	ErrKeyMissing = encryption.ErrKeyMissing
	ErrLost       = encryption.ErrLost
	ErrNoDatabase = errors.New("there is no database") // the file does not exist or is empty
)

// State describes the file at a path.
type State = sqlite.State

// The states of a file that Open accepts.
const (
	None     = sqlite.None
	LeftOpen = sqlite.LeftOpen
	Outdated = sqlite.Outdated
)

// Owner returns the process that owns the file at path; see ownership.Of.
func Owner(path string) (pid string, running bool) { return ownership.Of(path) }

// Examine checks a file that has no owner as Open would, and returns the errors that Open would return. It changes and
// creates nothing. It checks less if the last owner left the file open: only the next owner may read all of it.
func Examine(ctx context.Context, o Options) (State, error) {
	o.findKeys = encryption.Source.Find
	e, _ := o.engine()
	return sqlite.Examine(ctx, e)
}

// KeyChange and Rekeyed are what Rekey gets and returns.
type (
	KeyChange = encryption.Change
	Rekeyed   = encryption.Changed
)

// Rekey replaces the encryption key; see encryption.Change. If the file has an owner, it returns ErrInUse.
func Rekey(ctx context.Context, o Options, change KeyChange) (result Rekeyed, err error) {
	// Check this first, because the engine creates a lock file.
	if info, err := os.Stat(o.Path); errors.Is(err, os.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return result, fault.Advise(fmt.Errorf("%w at %s", ErrNoDatabase, o.Path), "set storage.path to the file whose key is to change")
	}
	o, err = o.complete()
	if err != nil {
		return result, err
	}
	o.findKeys = change.Find
	file, key, err := o.openFile(ctx, queue.NewMemory(o.Policy, o.Observer, o.Logger))
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return change.Apply(ctx, file, key)
}

// foundKeys are set by the hooks of the engine.
type foundKeys struct {
	keys encryption.Keys // that may fit the file
	key  seal.Key        // that fits
}

// engine returns the options of the engine, and the keys that it finds with them.
func (o Options) engine() (sqlite.Options, *foundKeys) {
	find, found := o.findKeys, &foundKeys{}
	if find == nil {
		find = encryption.Source.FindOrCreate
	}
	e := sqlite.Options{
		Path: o.Path, Schema: o.Schema, Upgrades: schemaUpgrades[:], Synchronous: o.Synchronous, IsCopy: o.isCopy, Reserve: o.Reserve,
		Logger: o.Logger, Now: o.Now,
	}
	if o.tune != nil {
		o.tune(&e)
	}
	e.Prepare = func(path string, start sqlite.Start) (err error) {
		found.keys, err = find(encryption.Source{Path: path, Key: o.EncryptionKey}, start)
		return err
	}
	e.Recognize = func(ctx context.Context, path string, db *sqlx.DB) (err error) {
		found.key, err = found.keys.Recognize(ctx, path, db)
		return err
	}
	return e, found
}

// schemaVersion is the version of schema.sql (PRAGMA user_version): the number of upgrades plus one. Version 1 is that of 0.1.0.
const schemaVersion = 1

// schemaUpgrades are the upgrades of this version. The first one leads from schema 1 to schema 2, and so on. An upgrade
// must not change the table instance, because Open reads it before an upgrade.
var schemaUpgrades = [schemaVersion - 1]sqlite.Step{}
