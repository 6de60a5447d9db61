package cli

import (
	"errors"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/disk"
)

// The exit codes of every command. The document "operating" lists them for people, and a test compares.
const (
	ExitOK      = 0
	ExitFailure = 1  // the command began and did not succeed
	ExitUsage   = 2  // the command line or the configuration is wrong: trying again cannot help
	ExitNewer   = 3  // the database was written by a newer version
	ExitFile    = 4  // the file is not the database that is expected, or is damaged or lost
	ExitKey     = 5  // the encryption key is missing or another one
	ExitInUse   = 6  // another process owns the database
	ExitPort    = 7  // an address cannot be listened on
	ExitPlace   = 8  // directory, owner, mode or file system do not allow for a database
	ExitDisk    = 74 // the disk or the files failed while the server ran (EX_IOERR of sysexits.h)
)

// codes is the one table from what ended a command to its exit code. The first that fits counts; what is not in it is
// ExitFailure.
var codes = []struct {
	is   error
	code int
}{
	{storage.ErrFailed, ExitDisk},
	{storage.ErrNewerSchema, ExitNewer},
	{storage.ErrForeignFile, ExitFile},
	{storage.ErrSchema, ExitFile},
	{storage.ErrLost, ExitFile},
	{storage.ErrNoDatabase, ExitFile},
	{storage.ErrDamaged, ExitFile},
	{storage.ErrKey, ExitKey},
	{storage.ErrKeyMissing, ExitKey},
	{storage.ErrInUse, ExitInUse},
	{errListen, ExitPort},
	{disk.ErrAccess, ExitPlace},
	{disk.ErrFileSystem, ExitPlace},
}

// exitCode returns the code of what a command that has begun ended with.
func exitCode(err error) int {
	var problems config.Problems
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &problems):
		return ExitUsage
	}
	for _, c := range codes {
		if errors.Is(err, c.is) {
			return c.code
		}
	}
	return ExitFailure
}
