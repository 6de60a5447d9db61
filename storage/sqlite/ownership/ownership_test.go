package ownership_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/disk"
	"github.com/keyhook/keyhook/storage/sqlite/ownership"
)

const nobody = 65534

// TestMain is also the other process of a test. It takes the database that KEYHOOK_TEST_OWN names, with the rights of the user that
// KEYHOOK_TEST_USER names, and keeps it until its input ends.
func TestMain(m *testing.M) {
	path := os.Getenv("KEYHOOK_TEST_OWN")
	if path == "" {
		os.Exit(m.Run())
	}
	if user, err := strconv.Atoi(os.Getenv("KEYHOOK_TEST_USER")); err == nil {
		if err := syscall.Setuid(user); err != nil {
			panic(err)
		}
	}
	lock, err := ownership.Take(path)
	if err == nil {
		err = lock.LockFile(path)
	}
	fmt.Println(err)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// otherProcess starts a process that takes a database, and returns what Take and LockFile said there. user is empty for the present one.
func otherProcess(t *testing.T, path, user string) (cmd *exec.Cmd, said string) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "KEYHOOK_TEST_OWN="+path, "KEYHOOK_TEST_USER="+user)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	output, outputErr := cmd.StdoutPipe()
	if err := errors.Join(err, outputErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		_ = cmd.Wait() // the test may have killed it
	})
	said, err = bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("the other process said %q: %v", said, err)
	}
	return cmd, strings.TrimSpace(said)
}

// newDatabase returns the path of a file that stands for a database.
func newDatabase(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keyhook.db")
	if err := os.WriteFile(path, []byte("a database"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// take takes a database until the test ends.
func take(t *testing.T, path string) *ownership.Lock {
	t.Helper()
	lock, err := ownership.Take(path)
	if err == nil {
		err = lock.LockFile(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Release() }) // the test may have released it
	return lock
}

func release(t *testing.T, lock *ownership.Lock) {
	t.Helper()
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
}

// expectOwner compares the process that owns a database; empty for none.
func expectOwner(t *testing.T, path, want string) {
	t.Helper()
	if pid, running := ownership.Of(path); pid != want || running != (want != "") {
		t.Errorf("the owner is %q (running: %v), want %q", pid, running, want)
	}
}

// expectRefusal expects an error of a kind, with these texts.
func expectRefusal(t *testing.T, err, kind error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !errors.Is(err, kind) || !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %v, want %v with %q", err, kind, text)
		}
	}
}

func TestOneOwner(t *testing.T) {
	t.Parallel()
	self := strconv.Itoa(os.Getpid())

	t.Run("a second owner in this process is refused, and told the first, until the first releases", func(t *testing.T) {
		t.Parallel()
		path := newDatabase(t)
		expectOwner(t, path, "")
		first := take(t, path)
		_, err := ownership.Take(path)
		expectRefusal(t, err, ownership.ErrInUse, path+" belongs to the running process "+self, "storage.path")
		expectOwner(t, path, self)
		release(t, first)
		expectOwner(t, path, "")
		if info, err := os.Stat(path + ".lock"); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the lock file is %v, error %v; it must stay", info, err)
		}
		take(t, path)
	})

	t.Run("another process is refused, and told this one", func(t *testing.T) {
		t.Parallel()
		path := newDatabase(t)
		take(t, path)
		if _, said := otherProcess(t, path, ""); !strings.Contains(said, path+" belongs to the running process "+self) {
			t.Errorf("the other process said %q", said)
		}
		expectOwner(t, path, self) // the other process did not write its id
	})

	t.Run("a killed process owns nothing, though its lock file stays", func(t *testing.T) {
		t.Parallel()
		path := newDatabase(t)
		other, said := otherProcess(t, path, "")
		if said != "<nil>" {
			t.Fatal(said)
		}
		pid := strconv.Itoa(other.Process.Pid)
		expectOwner(t, path, pid)
		_, err := ownership.Take(path)
		expectRefusal(t, err, ownership.ErrInUse, "process "+pid)
		if err := other.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = other.Wait() // was killed
		expectOwner(t, path, "")
		take(t, path)
		expectOwner(t, path, self)
	})

	t.Run("a name can be taken before there is a database", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "keyhook.db")
		lock, err := ownership.Take(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ownership.Take(path)
		expectRefusal(t, err, ownership.ErrInUse, path)
		expectRefusal(t, lock.LockFile(path), disk.ErrAccess, path)
		release(t, lock)
	})
}

// TestMade creates a database, which a lost one is recognised by.
func TestMade(t *testing.T) {
	t.Parallel()
	path := newDatabase(t)
	expect := func(want bool) {
		t.Helper()
		if made := ownership.WasMade(path); made != want {
			t.Errorf("made: %v", made)
		}
	}
	expect(false)
	lock := take(t, path)
	expect(false)
	if err := lock.NoteMade(); err != nil {
		t.Fatal(err)
	}
	expect(true)
	expectOwner(t, path, strconv.Itoa(os.Getpid()))
	release(t, lock)
	if err := os.WriteFile(path+".lock", []byte("1234567890\ndatabase made\n"), 0o600); err != nil { // a longer id than that of this process
		t.Fatal(err)
	}
	take(t, path)
	expect(true)
	want := fmt.Sprintf("%d\ndatabase made\n", os.Getpid())
	if text, err := os.ReadFile(path + ".lock"); err != nil || string(text) != want {
		t.Errorf("the lock file has %q, error %v", text, err)
	}
}

func TestOtherNames(t *testing.T) {
	t.Parallel()

	t.Run("readers share a database, and keep a new owner away", func(t *testing.T) {
		t.Parallel()
		path := newDatabase(t)
		var readers []*os.File
		for range 2 {
			f, err := ownership.Share(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			readers = append(readers, f)
		}
		lock, err := ownership.Take(path)
		if err != nil {
			t.Fatal(err)
		}
		expectRefusal(t, lock.LockFile(path), ownership.ErrInUse, "another name")
		for _, f := range readers {
			f.Close()
		}
		for range 2 { // the second call has nothing to do
			if err := lock.LockFile(path); err != nil {
				t.Fatal(err)
			}
		}
		_, err = ownership.Share(path)
		expectRefusal(t, err, ownership.ErrInUse, path)
		release(t, lock)
		if f, err := ownership.Share(path); err != nil || f.Close() != nil {
			t.Error(err)
		}
	})

	t.Run("a new owner waits for who only looks", func(t *testing.T) {
		t.Parallel()
		path := newDatabase(t)
		looking, err := ownership.Share(path)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(50*time.Millisecond, func() { looking.Close() })
		take(t, path)
	})

	t.Run("a server on this name may run during a backup, and one on another name may not", func(t *testing.T) {
		t.Parallel()
		path := newDatabase(t)
		if err := ownership.CheckOtherNames(path); err != nil {
			t.Errorf("without a server: %v", err)
		}
		take(t, path)
		if err := ownership.CheckOtherNames(path); err != nil {
			t.Errorf("beside a server: %v", err)
		}
		moved := filepath.Join(t.TempDir(), "moved.db") // as a mount in another container has it
		if err := os.Rename(path, moved); err != nil {
			t.Fatal(err)
		}
		expectRefusal(t, ownership.CheckOtherNames(moved), ownership.ErrInUse, moved, "another name")
		lock, err := ownership.Take(moved)
		if err != nil {
			t.Fatal(err)
		}
		expectRefusal(t, lock.LockFile(moved), ownership.ErrInUse, moved, "another name")
		release(t, lock)
	})

	t.Run("a hard link is refused, except for one that a killed restore left", func(t *testing.T) {
		t.Parallel()
		path := newDatabase(t)
		left, second := path+ownership.ReplacedSuffix+"20260102-030405.678", filepath.Join(filepath.Dir(path), "second.db")
		for _, name := range []string{left, second} {
			if err := os.Link(path, name); err != nil {
				t.Fatal(err)
			}
		}
		lock, err := ownership.Take(path)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Release()
		expectRefusal(t, ownership.CheckOtherNames(path), disk.ErrAccess, path+" has 3 names")
		expectRefusal(t, lock.LockFile(path), disk.ErrAccess, path+" has 2 names", "-inum ")
		expectRefusal(t, ownership.CheckOtherNames(second), disk.ErrAccess, second+" has 2 names")
		if disk.Exists(left) || !disk.Exists(second) {
			t.Error("the name that a restore left is there, or the other one is not")
		}
		if err := errors.Join(os.Remove(second), os.WriteFile(left, nil, 0o600), lock.LockFile(path)); err != nil {
			t.Error(err)
		}
		restored := newDatabase(t)
		if err := errors.Join(os.Link(restored, restored+ownership.ReplacedSuffix+"20260102-030405.678"), ownership.CheckOtherNames(restored)); err != nil {
			t.Errorf("a backup before the next start: %v", err)
		}
		if !disk.Exists(left) {
			t.Error("another database that a restore replaced was removed")
		}
	})
}

func TestAccess(t *testing.T) {
	t.Parallel()

	t.Run("a directory in which this user may not write is refused", func(t *testing.T) {
		t.Parallel()
		path, user := newDatabase(t), ""
		for _, dir := range []string{filepath.Dir(filepath.Dir(path)), filepath.Dir(path)} { // the last one for reading
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Dir(path), 0o555); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(filepath.Dir(path), 0o755) })
		if os.Getuid() == 0 {
			user = strconv.Itoa(nobody) // root may write everywhere
		}
		if _, said := otherProcess(t, path, user); !strings.Contains(said, "may not use "+path+".lock") || disk.Exists(path+".lock") {
			t.Errorf("the other process said %q", said)
		}
	})

	t.Run("the lock file of another user is refused, and is no owner's", func(t *testing.T) {
		t.Parallel()
		if os.Getuid() != 0 {
			if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
				t.Fatal("only root can make a file of another user")
			}
			t.Skip("only root can make a file of another user") // fails if KEYHOOK_TEST_REQUIRE is set
		}
		path := newDatabase(t)
		lock := take(t, path)
		if err := errors.Join(lock.NoteMade(), os.Chown(path+".lock", nobody, nobody)); err != nil {
			t.Fatal(err)
		}
		_, err := ownership.Take(path)
		expectRefusal(t, err, disk.ErrAccess, path+".lock belongs to another user")
		expectOwner(t, path, "")
		if ownership.WasMade(path) {
			t.Error("the file of another user is believed")
		}
	})

	t.Run("a link in place of the lock file is refused, and its target stays", func(t *testing.T) {
		t.Parallel()
		path, target := newDatabase(t), filepath.Join(t.TempDir(), "target")
		if err := errors.Join(os.WriteFile(target, []byte("theirs"), 0o600), os.Symlink(target, path+".lock")); err != nil {
			t.Fatal(err)
		}
		_, err := ownership.Take(path)
		expectRefusal(t, err, disk.ErrAccess, path+".lock")
		if text, err := os.ReadFile(target); err != nil || string(text) != "theirs" {
			t.Errorf("the target has %q, error %v", text, err)
		}
	})
}
