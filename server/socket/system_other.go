//go:build !linux

package socket

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// peerUser trusts every process on this system. Only the mode of the socket protects it.
func peerUser(*net.UnixConn) (uid int, err error) { return os.Geteuid(), nil }

// setPrivateMode relies on the umask of the process, which keeps other users out.
func setPrivateMode(_, _ string, _ syscall.RawConn) error { return nil }

// pathInDirectory has no shorter name on this system.
func pathInDirectory(dir *os.File, base string) (string, error) {
	return filepath.Join(dir.Name(), base), nil
}
