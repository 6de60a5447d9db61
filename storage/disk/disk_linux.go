package disk

import (
	"errors"
	"os"
	"syscall"
)

// MountOf returns the mount of an absolute path.
func MountOf(path string) (Mount, error) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	return mountOf(path, string(mountinfo)), err
}

// Free returns how many bytes this process can still write at path, and the total. ok is false if the system does not say.
func Free(path string) (free, total uint64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil || s.Bsize <= 0 {
		return 0, 0, false
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), true
}

const keepID = -1

// become changes the real, effective and saved ids of all threads.
func (u User) become() error {
	if err := syscall.Setgroups([]int{u.GID}); err != nil {
		return err
	}
	if err := syscall.Setresgid(u.GID, u.GID, u.GID); err != nil {
		return err
	}
	return syscall.Setresuid(u.UID, u.UID, u.UID)
}

// borrow changes the effective ids of all threads. The real id stays root's, so that the user cannot signal the
// process. undo may be called even after an error.
func (u User) borrow() (undo func() error, err error) {
	gid := os.Getegid()
	groups, err := syscall.Getgroups()
	undo = func() error {
		return errors.Join(syscall.Setresuid(keepID, 0, keepID), syscall.Setresgid(keepID, gid, keepID), syscall.Setgroups(groups))
	}
	if err != nil {
		return func() error { return nil }, err
	}
	if err := syscall.Setgroups([]int{u.GID}); err != nil {
		return undo, err
	}
	if err := syscall.Setresgid(keepID, u.GID, keepID); err != nil {
		return undo, err
	}
	return undo, syscall.Setresuid(keepID, u.UID, keepID)
}

// access is access(2) with the effective ids.
func access(name string, mode uint32) error {
	const effective = 0x200 // AT_EACCESS
	return syscall.Faccessat(atFDCWD, name, mode, effective)
}

const atFDCWD = -100 // AT_FDCWD
