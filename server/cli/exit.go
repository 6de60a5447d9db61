package cli

import (
	"errors"

	"github.com/keyhook/keyhook/server/cli/apply"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/disk"
)

// The exit codes of all commands. The document "operating" has the same table, and a test compares.
const (
	ExitOK      = 0
	ExitFailure = 1  // the command began and failed
	ExitUsage   = 2  // the command line, the settings or the file of apply are wrong; another try cannot help
	ExitNewer   = 3  // the database was written by a newer version
	ExitFile    = 4  // the file is not the expected database, or it is damaged or lost
	ExitKey     = 5  // the encryption key is missing or wrong
	ExitInUse   = 6  // another process owns the database
	ExitPort    = 7  // an address cannot be listened on
	ExitPlace   = 8  // the directory, owner, mode or file system does not suit a database
	ExitDisk    = 74 // the disk or the files failed while the server ran (EX_IOERR of sysexits.h)
)

// codes maps the errors of commands to exit codes. The first match counts. Other errors are ExitFailure.
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

// exitCode returns the exit code for the error of a command that has begun.
func exitCode(err error) int {
	var problems config.Problems
	var wrongFile apply.Problems
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &problems), errors.As(err, &wrongFile):
		return ExitUsage
	}
	for _, c := range codes {
		if errors.Is(err, c.is) {
			return c.code
		}
	}
	return ExitFailure
}
