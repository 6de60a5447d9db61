package disk

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/storage/fault"
)

// Mount is the mount point and the type of a file system. The zero value is unknown.
type Mount struct {
	Point string
	Type  string // the kernel's name: "ext4", "nfs4", "fuse.sshfs"
}

// remoteTypes are file systems of another machine, or of the host of a virtual one. Locks, shared memory and flushing
// do not work there as SQLite's write-ahead log needs. Files break there without any error.
var remoteTypes = []string{
	"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "virtiofs", "afs", "auristorfs", "ceph", "glusterfs",
	"lustre", "beegfs", "orangefs", "gpfs", "gfs2", "ocfs2", "coda", "ncpfs", "davfs", "vboxsf", "vmhgfs", "prl_fs",
	"fakeowner", "drvfs",
}

// layerTypes are the writable layers of a container, which are lost with the container.
var layerTypes = []string{"overlay", "aufs", "fuse.fuse-overlayfs"}

// CheckMount refuses a file system that cannot store the database at path, because it is on a network or passes through a program (FUSE):
// ErrFileSystem. A container's own layer made by fuse-overlayfs counts as local.
func (m Mount) CheckMount(path string) error {
	isFUSE := (m.Type == "fuse" || strings.HasPrefix(m.Type, "fuse.")) && !slices.Contains(layerTypes, m.Type)
	if !isFUSE && !slices.Contains(remoteTypes, m.Type) {
		return nil
	}
	sentence := fmt.Sprintf("%s is on %s (mounted at %s), a network or pass-through file system, where a database breaks without any error", path, m.Type, m.Point)
	return fault.Advise(refusal{sentence, []error{ErrFileSystem}}, "set storage.path to a file on a local disk or a named volume")
}

// LossWarning returns a warning if the file system is lost with the container or the power, otherwise "".
func (m Mount) LossWarning() string {
	switch {
	case slices.Contains(layerTypes, m.Type):
		return "the database is on the container's own layer and is lost with the container; mount a volume at the directory of storage.path"
	case m.Type == "tmpfs", m.Type == "ramfs":
		return "the database is in memory (tmpfs) and is lost at a power cut; set storage.path to a file on a disk"
	}
	return ""
}

// mountOf finds the mount of the absolute path in the text of a /proc/PID/mountinfo file (proc_pid_mountinfo(5)). If mounts
// cover each other, the last one counts.
func mountOf(path, mountinfo string) (found Mount) {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		separator := slices.Index(fields, "-")
		if len(fields) < 5 || separator < 0 || separator+1 >= len(fields) {
			continue
		}
		if point := escapes.Replace(fields[4]); isAtOrAbove(point, path) && len(point) >= len(found.Point) {
			found = Mount{Point: point, Type: fields[separator+1]}
		}
	}
	return found
}

// isAtOrAbove reports whether path is point or below it.
func isAtOrAbove(point, path string) bool {
	rest, below := strings.CutPrefix(filepath.Clean(path), point)
	return below && (rest == "" || point == "/" || rest[0] == '/')
}

// escapes are all that the kernel writes in the octal form.
var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")
