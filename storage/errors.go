package storage

import (
	"github.com/keyhook/keyhook/storage/encryption"
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

	ErrKey        = encryption.ErrKey
	ErrKeyMissing = encryption.ErrKeyMissing
	ErrLost       = encryption.ErrLost
)
