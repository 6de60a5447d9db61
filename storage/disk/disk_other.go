//go:build !linux

package disk

// MountOf is known on Linux only.
func MountOf(string) (Mount, error) { return Mount{}, nil }

// Free is known on Linux only.
func Free(string) (free, total uint64, ok bool) { return 0, 0, false }

// FreeFiles is known on Linux only.
func FreeFiles(string) (free uint64, ok bool) { return 0, false }
