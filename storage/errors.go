package storage

import (
	"errors"

	"github.com/keyhook/keyhook/storage/sqlite"
)

// The reasons why a database cannot be opened, copied, restored or used. Each error is wrapped with advice on what to
// do.
var (
	ErrInUse         = sqlite.ErrInUse
	ErrNewerSchema   = sqlite.ErrNewerSchema
	ErrSchema        = sqlite.ErrSchema
	ErrForeignFile   = sqlite.ErrForeignFile
	ErrDamaged       = sqlite.ErrDamaged
	ErrExists        = sqlite.ErrExists
	ErrBackupRunning = sqlite.ErrBackupRunning
	ErrNoSpace       = sqlite.ErrNoSpace
	ErrStopped       = sqlite.ErrStopped
	ErrFailed        = sqlite.ErrFailed

	ErrLost = errors.New("database is empty or gone") // but its key file or its lock file exists
)
