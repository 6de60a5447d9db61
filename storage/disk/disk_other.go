//go:build !linux

package disk

// MountOf works only on Linux.
func MountOf(string) (Mount, error) { return Mount{}, nil }

// Free works only on Linux.
func Free(string) (free, total uint64, ok bool) { return 0, 0, false }

// FreeFiles works only on Linux.
func FreeFiles(string) (free uint64, ok bool) { return 0, false }
