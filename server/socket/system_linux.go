package socket

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"syscall"
)

// peerUser returns the user that the process at the other end had when it connected (unix(7), SO_PEERCRED).
func peerUser(conn *net.UnixConn) (uid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		credentials, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = cmp.Or(err, failed); err != nil {
		return 0, err
	}
	return int(credentials.Uid), nil
}

// setPrivateMode sets the mode of a socket to 0600 before bind(2) makes its file with that mode. Changing the mode of the file later
// could change another file that has its name by then.
func setPrivateMode(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), 0o600) })
	return cmp.Or(err, failed)
}

// pathInDirectory names a file by its open directory, so that the length of the directory's path does not matter.
func pathInDirectory(dir *os.File, base string) (string, error) {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), base), nil
}
