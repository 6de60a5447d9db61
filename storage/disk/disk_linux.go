package disk

import (
	"os"
	"syscall"
)

// MountOf returns the mount of an absolute path.
func MountOf(path string) (Mount, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Mount{}, err
	}
	defer file.Close()
	return mountOf(path, file)
}

// Free returns how many bytes this process can still write at path, and the total. ok is false if the system does not
// say.
func Free(path string) (free, total uint64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil || s.Bsize <= 0 {
		return 0, 0, false
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), true
}

// FreeFiles returns how many files can still be created at path. ok is false if the system does not say, as on a file
// system without such a limit.
func FreeFiles(path string) (free uint64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil || s.Files == 0 {
		return 0, false
	}
	return s.Ffree, true
}
