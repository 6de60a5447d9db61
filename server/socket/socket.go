// Package socket owns the local socket: the way in for who may open the database file anyway. It knows where it stands,
// how to listen on it and connect to it, and who is let in. It does not know what is said over it.
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
)

// Path returns where the socket stands of the process that owns a database: beside the file itself, whatever symbolic
// links lead to it. The database need not exist.
func Path(database string) (string, error) {
	if target, err := filepath.EvalSymlinks(database); err == nil {
		database = target
	} else if dir, err := filepath.EvalSymlinks(filepath.Dir(database)); err == nil {
		database = filepath.Join(dir, filepath.Base(database))
	}
	path, err := filepath.Abs(database)
	return path + suffix, err
}

// suffix is added to the name of the database.
const suffix = ".sock"

// ErrInTheWay is returned by Listen where something stands at the path that is no socket.
var ErrInTheWay = errors.New("not a socket")

// Listen listens beside a database that this process owns, so a socket that stands there already was left behind by an
// owner that was killed, and is replaced. Only processes of this user and of root get through. Closing the listener
// removes the socket.
//
// A system that offers no such socket, or a path that is too long for one, keeps no server from serving: that is a
// warning in the log, and the listener is nil.
func Listen(database string, log *slog.Logger) (net.Listener, error) {
	path, err := Path(database)
	if err != nil {
		return nil, fmt.Errorf("local socket: %w", err)
	}
	if err := sweep(path); err != nil {
		return nil, err
	}
	l, err := listen(path)
	if err != nil {
		log.Warn("no local socket: the commands need --url and --token here", "path", path, "cause", err)
		return nil, nil
	}
	return &listener{UnixListener: l, path: path, log: log}, nil
}

// sweep removes what a dead owner has left.
func sweep(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("local socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%w: %s stands where the local socket belongs; move it away, or set storage.path to another file", ErrInTheWay, path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the local socket that a killed server has left: %w", err)
	}
	return nil
}

func listen(path string) (*net.UnixListener, error) {
	name, release, err := address(path)
	if err != nil {
		return nil, err
	}
	defer release()
	config := net.ListenConfig{Control: private}
	found, err := config.Listen(context.Background(), "unix", name)
	if err != nil {
		return nil, err
	}
	l := found.(*net.UnixListener)
	l.SetUnlinkOnClose(false) // the name may be another than the path
	return l, nil
}

// listener lets in processes of this user and of root. The mode of the socket says so already; this is for a file system
// that has no modes, and for an operator who changed it.
type listener struct {
	*net.UnixListener
	path   string
	log    *slog.Logger
	remove sync.Once
}

// Accept returns the next connection of somebody who may connect.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, known, err := peer(conn)
		if err == nil && (!known || uid == 0 || uid == os.Geteuid()) {
			return conn, nil
		}
		l.log.Warn("a process of another user was refused at the local socket", "path", l.path, "uid", uid, "cause", err)
		_ = conn.Close() // whoever it is learns no more
	}
}

// Close stops listening and removes the socket, once: after that, the place may be another process's.
func (l *listener) Close() error {
	err := l.UnixListener.Close()
	l.remove.Do(func() {
		if gone := os.Remove(l.path); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	})
	return err
}

// ErrStranger is returned by Dial where a process listens that cannot be the server of the database.
var ErrStranger = errors.New("a process of another user listens")

// Dial connects to the socket at a path. It returns ErrStranger where the process that listens there belongs neither to this
// user, nor to root, nor to the owner of the database: in a directory that all may write to, as /tmp, anybody can make a
// socket of that name while no server runs.
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

// checkListener returns ErrStranger where the process at the other end is not trusted.
func checkListener(conn *net.UnixConn, path string) error {
	uid, known, err := peer(conn)
	if err != nil || !known || uid == 0 || uid == os.Geteuid() {
		return err
	}
	if info, err := os.Lstat(strings.TrimSuffix(path, suffix)); err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == uid {
			return nil
		}
	}
	return fmt.Errorf("%w on %s (uid %d), so nothing was sent to it; look at who made that socket, and remove it", ErrStranger, path, uid)
}

// longest is how many bytes the address of a socket may have, the NUL at its end left out.
const longest = len(syscall.RawSockaddrUnix{}.Path) - 1

// address returns a name for the socket that is short enough for the system; release is called once it has been used.
func address(path string) (name string, release func(), err error) {
	if len(path) <= longest {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	name, err = through(dir, filepath.Base(path))
	if err == nil && len(name) > longest {
		err = fmt.Errorf("its path has %d bytes where %d fit: choose a shorter storage.path", len(path), longest)
	}
	if err != nil {
		return "", nil, errors.Join(err, dir.Close())
	}
	return name, func() { _ = dir.Close() }, nil
}
