package disk

// MountIn is MountOf with the text of a mountinfo file.
func MountIn(path, mountinfo string) Mount { return mountOf(path, mountinfo) }
