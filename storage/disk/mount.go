package disk

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/storage/fault"
)

// Mount is where a file system is mounted and of what type it is. The zero value is one of which nothing is known.
type Mount struct {
	Point string
	Type  string // as the kernel calls it: "ext4", "nfs4", "fuse.sshfs"
}

// remote are the types of file systems that are another machine's, or the host's of a virtual one. Locks, shared memory and
// flushing do not mean there what SQLite's write-ahead log relies on: files break there without any error.
var remote = []string{
	"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "virtiofs", "afs", "auristorfs", "ceph", "glusterfs",
	"lustre", "beegfs", "orangefs", "gpfs", "gfs2", "ocfs2", "coda", "ncpfs", "davfs", "vboxsf", "vmhgfs", "prl_fs",
	"fakeowner", "drvfs",
}

// Remote reports whether the file system is a network's, or passes through a program (FUSE), so that no database may stand
// on it. A container's own layer made by fuse-overlayfs is local.
func (m Mount) Remote() bool {
	return slices.Contains(remote, m.Type) || (m.Type == "fuse" || strings.HasPrefix(m.Type, "fuse.")) && !m.Layer()
}

// Layer reports whether the file system is the writable layer of a container, which goes with the container.
func (m Mount) Layer() bool {
	return slices.Contains([]string{"overlay", "aufs", "fuse.fuse-overlayfs"}, m.Type)
}

// Memory reports whether the file system goes with the power.
func (m Mount) Memory() bool { return m.Type == "tmpfs" || m.Type == "ramfs" }

// CheckMount refuses a file system that cannot hold the database at path: ErrFileSystem.
func (m Mount) CheckMount(path string) error {
	if !m.Remote() {
		return nil
	}
	return fault.Advise(fmt.Errorf("%w: %s is on %s (mounted at %s), a network or pass-through file system, where SQLite's files break without any error", ErrFileSystem, path, m.Type, m.Point),
		"put it on a local disk or a named volume and set storage.path")
}

// Passing returns a warning about a place that does not last, empty where it does.
func (m Mount) Passing() string {
	switch {
	case m.Layer():
		return "the database is on the container's own layer and is lost with the container; mount a volume at its directory"
	case m.Memory():
		return "the database is in memory (tmpfs) and is lost with the machine's power; set storage.path to a file on a disk"
	}
	return ""
}

// mountOf finds the mount that the absolute path is on, in the format of /proc/PID/mountinfo (proc_pid_mountinfo(5)). Of
// mounts over each other the last one counts.
func mountOf(path string, mountinfo io.Reader) (Mount, error) {
	var found Mount
	lines := bufio.NewScanner(mountinfo)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		separator := slices.Index(fields, "-")
		if len(fields) < 5 || separator < 0 || separator+1 >= len(fields) {
			continue
		}
		if point := unescape(fields[4]); holds(point, path) && len(point) >= len(found.Point) {
			found = Mount{Point: point, Type: fields[separator+1]}
		}
	}
	return found, lines.Err()
}

// holds reports whether path is point or below it.
func holds(point, path string) bool {
	rest, below := strings.CutPrefix(filepath.Clean(path), point)
	return below && (rest == "" || point == "/" || rest[0] == '/')
}

// unescape undoes the octal escapes of spaces and the like.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
