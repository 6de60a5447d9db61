package socket

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// peer returns the user of the process at the other end, as it was when that connected (unix(7), SO_PEERCRED).
func peer(conn *net.UnixConn) (uid int, known bool, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, false, err
	}
	var credentials *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		credentials, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return 0, false, err
	}
	if failed != nil {
		return 0, false, failed
	}
	return int(credentials.Uid), true, nil
}

// private gives a socket that has no name yet the mode 0600, which the file gets that bind(2) makes. To change the mode of the
// file afterwards would change that of whatever stands at its name by then.
func private(_, _ string, raw syscall.RawConn) error {
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), 0o600) }); err != nil {
		return err
	}
	return failed
}

// through names a file by the directory that is open here, however long the path of that is.
func through(dir *os.File, base string) (string, error) {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), base), nil
}
