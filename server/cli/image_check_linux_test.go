package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// The sizes of the binary: the limit and the target.
const (
	maxBinary    = 30_000_000
	targetBinary = 20_000_000
)

// describe logs what is tested, and checks the size of the binary.
func (i *image) describe(t *testing.T) {
	t.Helper()
	binary, err := os.ReadFile(filepath.Join(i.root, "keyhook"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(binary[:min(len(binary), 4096)], []byte("/lib64/ld-linux")) {
		t.Error("the binary is not static")
	}
	how := "a read-only mount in namespaces of its own, as process 1"
	if !i.isolated {
		how = "chroot alone, since this machine permits no namespaces: directories that only root may write to"
	}
	t.Logf("binary %d bytes, target %d, at most %d; isolated by %s", len(binary), targetBinary, maxBinary, how)
	if len(binary) > maxBinary {
		t.Error("the binary is too large")
	}
}

// tryToWrite tries to write everywhere in the tree, as the user of the program.
func (c *container) tryToWrite(t *testing.T) {
	seen := c.image.root
	if c.image.isolated {
		seen = fmt.Sprintf("/proc/%d/root", c.process(t))
	}
	for dir, may := range map[string]bool{"/": false, "/etc": false, "/etc/ssl/certs": false, "/data": true} {
		touch := exec.Command("touch", "written")
		touch.Dir = seen + dir
		touch.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if c.image.isolated { // then root cannot write either
			touch.SysProcAttr = nil
		}
		if err := touch.Run(); (err == nil) != may {
			t.Errorf("%s: error %v", dir, err)
		}
		_ = os.Remove(filepath.Join(seen, dir, "written"))
	}
}

// checkHealth runs the health check in the container.
func (c *container) checkHealth(t *testing.T) {
	root := c.image.root
	if c.image.isolated {
		root = fmt.Sprintf("/proc/%d/root", c.process(t))
	}
	check := exec.Command("chroot", "--userspec=65532:65532", root, "/keyhook", "healthcheck")
	check.Env = append([]string{"PATH=" + os.Getenv("PATH")}, c.environ...)
	out, err := check.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// checkFiles checks the files in the volume.
func (i *image) checkFiles(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(i.root, "data"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		names[f.Name()] = true
		if info.Mode().Perm()&0o077 != 0 || info.Sys().(*syscall.Stat_t).Uid != nobody {
			t.Errorf("%s has mode %s and belongs to %d", f.Name(), info.Mode(), info.Sys().(*syscall.Stat_t).Uid)
		}
	}
	if !names["keyhook.db"] || !names["keyhook.db.key"] {
		t.Errorf("the volume holds %v", names)
	}
}
