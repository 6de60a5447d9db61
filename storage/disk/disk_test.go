package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/fault"
)

// mounts is the mount table of a container with many volumes.
const mounts = `1 0 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/u
2 1 0:22 / /proc rw - proc proc rw
3 1 254:1 /volumes/data /data rw,relatime master:1 - ext4 /dev/vda1 rw
4 1 0:60 / /data/shared rw - nfs4 10.0.0.9:/export rw,vers=4.2
5 1 0:61 / /mnt/with\040space rw - cifs //server/share rw
6 1 0:62 / /mnt/host rw shared:7 master:2 - virtiofs host rw
7 1 0:63 / /mnt/plan9 rw - 9p host rw
8 1 0:64 / /mnt/ssh rw - fuse.sshfs me@there:/ rw
9 1 0:65 / /mnt/layer rw - fuse.fuse-overlayfs fuse-overlayfs rw
10 1 0:66 / /run rw - tmpfs tmpfs rw
11 1 0:67 / /mnt/twice rw - nfs there:/ rw
12 11 254:2 / /mnt/twice rw - xfs /dev/vdb rw
13 1 0:68 / /mnt/blk rw - fuseblk /dev/sda1 rw
14 1 0:69 / /mnt/program rw - fuse program rw
this line is broken
`

func TestMounts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		path, point, kind string
		refused           bool
		warning           string
	}{
		{"/keyhook.db", "/", "overlay", false, "container's own layer"},
		{"/data/keyhook.db", "/data", "ext4", false, ""},
		{"/database/keyhook.db", "/", "overlay", false, "container's own layer"},
		{"/data/shared/keyhook.db", "/data/shared", "nfs4", true, ""},
		{"/data/shared/deep/er/keyhook.db", "/data/shared", "nfs4", true, ""},
		{"/mnt/with space/keyhook.db", "/mnt/with space", "cifs", true, ""},
		{"/mnt/host/keyhook.db", "/mnt/host", "virtiofs", true, ""},
		{"/mnt/plan9/keyhook.db", "/mnt/plan9", "9p", true, ""},
		{"/mnt/ssh/keyhook.db", "/mnt/ssh", "fuse.sshfs", true, ""},
		{"/mnt/program/keyhook.db", "/mnt/program", "fuse", true, ""},
		{"/mnt/layer/keyhook.db", "/mnt/layer", "fuse.fuse-overlayfs", false, "container's own layer"},
		{"/run/keyhook.db", "/run", "tmpfs", false, "in memory"},
		{"/mnt/twice/keyhook.db", "/mnt/twice", "xfs", false, ""},
		{"/mnt/blk/keyhook.db", "/mnt/blk", "fuseblk", false, ""},
	} {
		t.Run(tt.path, func(t *testing.T) {
			t.Parallel()
			m := disk.MountIn(tt.path, mounts)
			if m.Point != tt.point || m.Type != tt.kind {
				t.Fatalf("%+v", m)
			}
			err := m.CheckMount(tt.path)
			if errors.Is(err, disk.ErrFileSystem) != tt.refused {
				t.Errorf("refused: %v", err)
			}
			if tt.refused && (!strings.Contains(err.Error(), tt.kind) || !strings.Contains(err.Error(), tt.path) || !strings.Contains(err.Error(), "storage.path")) {
				t.Errorf("the sentence does not say enough: %v", err)
			}
			if w := m.LossWarning(); (w == "") != (tt.warning == "") || !strings.Contains(w, tt.warning) {
				t.Errorf("warning %q", w)
			}
		})
	}

	t.Run("unknown file systems are accepted", func(t *testing.T) {
		t.Parallel()
		if m := disk.MountIn("/data/keyhook.db", ""); m != (disk.Mount{}) || m.CheckMount("x") != nil || m.LossWarning() != "" {
			t.Errorf("%+v", m)
		}
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()

	t.Run("an own directory is accepted, with and without files", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		for range 2 {
			if err := disk.Check(path); err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})

	t.Run("a file in place of the directory is refused", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := disk.Check(filepath.Join(path, "keyhook.db")); !errors.Is(err, disk.ErrAccess) || !strings.Contains(err.Error(), "not a directory") {
			t.Error(err)
		}
	})

	t.Run("a path is quoted for the shell if necessary", func(t *testing.T) {
		t.Parallel()
		_, _, err := disk.Resolve(filepath.Join(t.TempDir(), "it's here", "keyhook.db"))
		if !errors.Is(err, disk.ErrAccess) || !strings.Contains(err.Error(), `it'\''s here')`) {
			t.Error(err)
		}
	})
}

// TestExposed has a file of each mode with one bit more than its owner needs, and a link.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for cause, want := range map[error]string{
		syscall.ENOSPC: "free space on that disk", syscall.EDQUOT: "free space on that disk", syscall.EROFS: "mount the file system writable",
		syscall.EIO: "look at each directory",
	} {
		err := disk.Advise("/data/keyhook.db", &os.PathError{Op: "open", Path: "/data/keyhook.db", Err: cause})
		if _, mend := fault.Split(err); !errors.Is(err, disk.ErrAccess) || !errors.Is(err, cause) || !strings.HasPrefix(mend, want) {
			t.Errorf("%v: %v, mend %q", cause, err, mend)
		}
	}
}

func TestExposed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names := []string{filepath.Join(dir, "missing"), filepath.Join(dir, "link")}
	if err := os.Symlink(dir, names[1]); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o600, 0o601, 0o602, 0o604, 0o610, 0o620, 0o640} {
		name := filepath.Join(dir, mode.String())
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Chmod(name, mode)); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	found, mend := disk.Exposed(names)
	if len(found) != 6 || found[0] != names[3]+" (mode 0601)" || found[5] != names[8]+" (mode 0640)" || mend != "run: chmod 600 "+strings.Join(names[3:], " ") {
		t.Errorf("%q, %s", found, mend)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "big"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"relative": "big/keyhook.db", "twice": "relative", "absolute": filepath.Join(dir, "big", "keyhook.db"), "round": "round"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	want := filepath.Join(dir, "big", "keyhook.db")
	for _, there := range []bool{false, true} {
		for _, name := range []string{"relative", "twice", "absolute"} {
			if got, _, err := disk.Resolve(filepath.Join(dir, name)); got != want || err != nil {
				t.Errorf("%s, whose file is there (%v): %q, error %v", name, there, got, err)
			}
		}
		if err := os.WriteFile(want, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := disk.Resolve(filepath.Join(dir, "round")); !errors.Is(err, disk.ErrAccess) {
		t.Errorf("a link to itself: %v", err)
	}
}

// TestLocate needs root. It checks which user must access a file.
func TestLocate(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
			t.Fatal("only root can give files away")
		}
		t.Skip("only root can give files away") // a failure under KEYHOOK_TEST_REQUIRE
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, made := range []struct {
		name, target string // no target: a directory
		uid          int
	}{
		{"ours", "", 0}, {"home", "", 1000}, {"home/data", "", 65532}, {"home/data/roots", "", 0},
		{"to-data", "home/data", 0}, {"planted", "ours", 65532}, {"home/to-data", "data", 1000}, {"home/data/up", "..", 65532},
	} {
		name := filepath.Join(root, made.name)
		if made.target == "" {
			err = os.Mkdir(name, 0o755)
		} else {
			err = os.Symlink(made.target, name)
		}
		if err := errors.Join(err, os.Lchown(name, made.uid, made.uid)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		path, resolved string
		uid            int
		why            string
	}{
		{"ours/keyhook.db", "ours/keyhook.db", 0, "nobody else can change anything there"},
		{"home/data/keyhook.db", "home/data/keyhook.db", 65532, "the last owner counts"},
		{"home/data/roots/keyhook.db", "home/data/roots/keyhook.db", 65532, "who can rename a directory of root's is its owner"},
		{"to-data/keyhook.db", "home/data/keyhook.db", 65532, "a link of root's is trusted"},
		{"planted/keyhook.db", "ours/keyhook.db", 65532, "a link counts for its owner"},
		{"home/to-data/keyhook.db", "home/data/keyhook.db", 1000, "whoever owns its target"},
		{"home/data/up/../ours/keyhook.db", "ours/keyhook.db", 65532, "and what comes before it in the path is not what it leads to"},
	} {
		resolved, user, err := disk.Locate(root + "/" + tt.path)
		if want := filepath.Join(root, tt.resolved); err != nil || resolved != want || user.UID != tt.uid {
			t.Errorf("%s is %s of %s, error %v; want %s of %d: %s", tt.path, resolved, user, err, want, tt.uid, tt.why)
		}
	}
	key := filepath.Join(root, "ours", "lost.db"+disk.Key)
	if err := errors.Join(os.WriteFile(key, nil, 0o600), os.Chown(key, 65532, 65532)); err != nil {
		t.Fatal(err)
	}
	if _, user, err := disk.Resolve(filepath.Join(root, "ours", "lost.db")); err != nil || user.UID != 65532 {
		t.Errorf("a lost database belongs to %s, error %v; want the owner of its key", user, err)
	}
}

func TestFree(t *testing.T) {
	t.Parallel()
	if free, total, ok := disk.Free(t.TempDir()); ok && (free > total || total == 0) {
		t.Errorf("%d of %d bytes", free, total)
	} else if _, _, there := disk.Free(filepath.Join(t.TempDir(), "none")); there {
		t.Error("room where there is nothing")
	}
}

// A relative path needs the working directory, which sudo keeps although the other user may not read it.
func TestAWorkingDirectoryThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	_, _, err := disk.Locate("keyhook.db")
	if !errors.Is(err, disk.ErrAccess) || !strings.Contains(err.Error(), "working directory; change to another one, such as /") {
		t.Errorf("error %v", err)
	}
	if path, _, err := disk.Locate("/nowhere/keyhook.db"); err != nil || path != "/nowhere/keyhook.db" {
		t.Errorf("%s, error %v", path, err)
	}
}
