package disk

import (
	"os"
	"syscall"
)

// MountOf finds the mount that the absolute path is on.
func MountOf(path string) (Mount, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Mount{}, err
	}
	defer file.Close()
	return mountOf(path, file)
}

// Free returns how many bytes this process can still write where path is, and how many there are in all. ok is false where
// that cannot be told.
func Free(path string) (free, total uint64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil || s.Bsize <= 0 {
		return 0, 0, false
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), true
}

// FreeFiles returns how many files can still be made where path is. ok is false where that cannot be told, as on a file
// system without such a limit.
func FreeFiles(path string) (free uint64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil || s.Files == 0 {
		return 0, false
	}
	return s.Ffree, true
}
