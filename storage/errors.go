package storage

import (
	"errors"

	"github.com/keyhook/keyhook/storage/sqlite"
)

// Why a database cannot be opened, copied, restored or relied on. Each comes wrapped in a sentence that says what to do.
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

	ErrLost = errors.New("database is empty or gone") // though its key or its lock file is there
)
