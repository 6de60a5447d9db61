package cli

import (
	"errors"
	"slices"

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
	code   int
	errors []error
}{
	{ExitDisk, []error{storage.ErrFailed}},
	{ExitNewer, []error{storage.ErrNewerSchema}},
	{ExitFile, []error{storage.ErrForeignFile, storage.ErrSchema, storage.ErrLost, storage.ErrNoDatabase, storage.ErrDamaged}},
	{ExitKey, []error{storage.ErrKey, storage.ErrKeyMissing}},
	{ExitInUse, []error{storage.ErrInUse}},
	{ExitPort, []error{errListen}},
	{ExitPlace, []error{disk.ErrAccess, disk.ErrFileSystem}},
}

// exitCode returns the exit code for the error of a command that has begun.
func exitCode(err error) int {
	_, isSetting := errors.AsType[config.Problems](err)
	_, isFile := errors.AsType[apply.Problems](err)
	switch {
	case err == nil:
		return ExitOK
	case isSetting || isFile:
		return ExitUsage
	}
	for _, c := range codes {
		if slices.ContainsFunc(c.errors, func(is error) bool { return errors.Is(err, is) }) {
			return c.code
		}
	}
	return ExitFailure
}
