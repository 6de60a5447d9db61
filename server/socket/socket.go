// Package socket owns the local socket, for users who may open the database file anyway: its path, how to listen on it and
// connect to it, and which users may connect. It does not know the protocol.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/keyhook/keyhook/storage/fault"
)

// Path returns the path of the socket of the server that owns a database. It is next to the file itself, even if the path of
// the database is a symbolic link. The database need not exist.
func Path(database string) (string, error) {
	if target, err := filepath.EvalSymlinks(database); err == nil {
		database = target
	} else if dir, err := filepath.EvalSymlinks(filepath.Dir(database)); err == nil {
		database = filepath.Join(dir, filepath.Base(database))
	}
	path, err := filepath.Abs(database)
	return path + suffix, err
}

const suffix = ".sock"

// ErrPathTaken is returned by Listen if the path of the socket is taken by something that is not a socket.
var ErrPathTaken = errors.New("the path of the local socket is taken")

// Listen listens next to a database that this process owns. A socket that is there already belonged to a server that was
// killed, so Listen replaces it. Only processes of this user and of root may connect. Closing the listener removes the socket.
//
// If the system has no such sockets, or the path is too long, Listen logs a warning and returns no listener: the server can work without it.
func Listen(database string, log *slog.Logger) (net.Listener, error) {
	path, err := Path(database)
	if err != nil {
		return nil, fmt.Errorf("cannot make the local socket: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := listen(path)
	if err != nil {
		log.Warn("cannot make the local socket, so commands on this machine need --url and --token", "path", path, "cause", err)
		return nil, nil
	}
	return &listener{UnixListener: l, path: path, log: log}, nil
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("cannot look at the local socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fault.Advise(fmt.Errorf("%w: %s is not a socket", ErrPathTaken, path), "look at it and move it away, or set storage.path to another file")
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("cannot remove the local socket of a killed server: %w", err)
	}
	return nil
}

func listen(path string) (*net.UnixListener, error) {
	name, release, err := address(path)
	if err != nil {
		return nil, err
	}
	defer release()
	config := net.ListenConfig{Control: setPrivateMode}
	found, err := config.Listen(context.Background(), "unix", name)
	if err != nil {
		return nil, err
	}
	l := found.(*net.UnixListener)
	l.SetUnlinkOnClose(false) // the name may differ from the path
	return l, nil
}

// listener accepts only processes of this user and of root. The mode of the socket does the same, but some file systems have
// no modes, and an operator may change the mode.
type listener struct {
	*net.UnixListener
	path   string
	log    *slog.Logger
	remove sync.Once
}

// Accept returns the next connection of a process that may connect.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		switch uid, err := peerUser(conn); {
		case err != nil:
			l.log.Warn("refused a connection to the local socket, because its user is unknown", "path", l.path, "cause", err)
		case uid == 0 || uid == os.Geteuid():
			return conn, nil
		default:
			l.log.Warn("refused a connection to the local socket from another user", "path", l.path, "uid", uid)
		}
		_ = conn.Close() // the other process gets no reason
	}
}

// Close stops listening and removes the socket. It removes it only once, because later the path may belong to another process.
func (l *listener) Close() error {
	err := l.UnixListener.Close()
	l.remove.Do(func() {
		if gone := os.Remove(l.path); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	})
	return err
}

// ErrForeignProcess is returned by Dial if the process that listens cannot be the server of the database.
var ErrForeignProcess = errors.New("a process of another user listens")

// Dial connects to the socket at a path. It returns ErrForeignProcess unless the process that listens belongs to this user, to
// root or to the owner of the database. While no server runs, anyone can make a socket of that name in a directory such as /tmp.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	name, release, err := address(path)
	if err != nil {
		return nil, err
	}
	defer release()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	if err := checkListener(conn.(*net.UnixConn), path); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// checkListener returns ErrForeignProcess if the process at the other end is not trusted.
func checkListener(conn *net.UnixConn, path string) error {
	uid, err := peerUser(conn)
	if err != nil || uid == 0 || uid == os.Geteuid() {
		return err
	}
	if info, err := os.Lstat(strings.TrimSuffix(path, suffix)); err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == uid {
			return nil
		}
	}
	return fault.Advise(fmt.Errorf("%w on the socket %s (uid %d), so nothing was sent", ErrForeignProcess, path, uid), "find out who made that socket, and remove it")
}

// maxAddress is how many bytes the address of a socket may have, without the NUL at its end.
const maxAddress = len(syscall.RawSockaddrUnix{}.Path) - 1

// address returns a name of the socket that is short enough for the system. Call release after using it.
func address(path string) (name string, release func(), err error) {
	if len(path) <= maxAddress {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	name, err = pathInDirectory(dir, filepath.Base(path))
	if err == nil && len(name) > maxAddress {
		err = fault.Advise(fmt.Errorf("the path of the socket has %d bytes, but the system allows only %d", len(path), maxAddress), "set a shorter storage.path")
	}
	if err != nil {
		return "", nil, errors.Join(err, dir.Close())
	}
	return name, func() { _ = dir.Close() }, nil
}
