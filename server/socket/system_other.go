//go:build !linux

package socket

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// peer knows no users on this system. Only the mode of the socket protects it.
func peer(*net.UnixConn) (uid int, known bool, err error) { return 0, false, nil }

// private relies on the umask of the process, which keeps other users out.
func private(_, _ string, _ syscall.RawConn) error { return nil }

// nameIn has no shorter name on this system.
func nameIn(dir *os.File, base string) (string, error) { return filepath.Join(dir.Name(), base), nil }
