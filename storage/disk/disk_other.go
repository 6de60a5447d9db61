//go:build !linux

package disk

import (
	"errors"
	"syscall"
)

// MountOf works only on Linux.
func MountOf(string) (Mount, error) { return Mount{}, nil }

// Free works only on Linux.
func Free(string) (free, total uint64, ok bool) { return 0, 0, false }

var errOnlyLinux = errors.New("a process can change the user of all its threads only on Linux")

func (u User) become() error { return errOnlyLinux }

func (u User) borrow() (undo func() error, err error) {
	return func() error { return nil }, errOnlyLinux
}

func access(name string, mode uint32) error { return syscall.Access(name, mode) }
