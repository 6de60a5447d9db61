package disk

import "strings"

// MountIn is MountOf with the text of a mountinfo file.
func MountIn(path, mountinfo string) (Mount, error) {
	return mountOf(path, strings.NewReader(mountinfo))
}
