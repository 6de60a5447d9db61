package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/keyhook/keyhook/storage/storagetest"
)

// refusal is a start of the server that must fail: with its exit code, with one sentence that says what to do, and without
// a change to the files.
type refusal struct {
	name string
	// prepare changes the command, and the directory that it runs in, where a database and its key are. It returns what the
	// sentence must say besides.
	prepare func(t *testing.T, cmd *exec.Cmd) []string
	code    int
	says    string
}

func refuses(t *testing.T, refusals ...refusal) {
	t.Helper()
	made := t.TempDir() // a database and its key
	_, stop := storagetest.OpenWith(t, storagetest.Options(t, filepath.Join(made, "keyhook.db")))
	stop()
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			cmd := keyhook(t, t.TempDir(), "serve", "--listen=127.0.0.1:0")
			for _, name := range []string{"keyhook.db", "keyhook.db.key"} {
				text, err := os.ReadFile(filepath.Join(made, name))
				noError(t, err, os.WriteFile(filepath.Join(cmd.Dir, name), text, 0o600))
			}
			r.check(t, cmd)
		})
	}
}

func (r refusal) check(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	says := append(r.prepare(t, cmd), r.says)
	before := contents(t, cmd.Dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	context.AfterFunc(ctx, func() { cmd.Process.Kill() }) //nolint:errcheck // it has ended then
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != r.code {
		t.Fatalf("error %v, want exit code %d:\n%s", err, r.code, stderr.String())
	}
	sentence := stderr.String()
	if r.says != "+ table notes" { // which is a list
		sentence = lastSentence(t, sentence)
	}
	t.Log(sentence)
	for _, part := range says {
		if !strings.Contains(sentence, part) {
			t.Errorf("it does not say %q: %s", part, sentence)
		}
	}
	if stdout.Len() > 0 {
		t.Errorf("output: %s", stdout.String())
	}
	if r.code != 6 { // the owner of the file is at work
		if after := contents(t, cmd.Dir); !maps.Equal(before, after) {
			t.Errorf("the files were %v and are %v", before, after)
		}
	}
}

// lastSentence returns the error message of a command. Only lines of the log may come before it, and nothing after it.
func lastSentence(t *testing.T, stderr string) (sentence string) {
	t.Helper()
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "keyhook: ") {
			sentence += line
		} else if strings.HasPrefix(line, "{") == (sentence != "") {
			t.Errorf("neither log nor error message: %s", line)
		}
	}
	return sentence
}

func noError(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// alter returns a preparation that runs a statement on the database.
func alter(statement string) func(*testing.T, *exec.Cmd) []string {
	return func(t *testing.T, cmd *exec.Cmd) []string {
		change(t, filepath.Join(cmd.Dir, "keyhook.db"), statement)
		return nil
	}
}

func TestRefusedSettings(t *testing.T) {
	t.Parallel()
	refuses(t,
		refusal{"an unknown setting", func(_ *testing.T, cmd *exec.Cmd) []string {
			cmd.Env = append(cmd.Env, "KEYHOOK_WEBHOOKS_TIMOUT=5s")
			return []string{"KEYHOOK_WEBHOOKS_TIMEOUT"}
		}, 2, "KEYHOOK_WEBHOOKS_TIMOUT: this variable is not a setting"},
		refusal{"a certificate that does not exist", func(_ *testing.T, cmd *exec.Cmd) []string {
			cmd.Args = append(cmd.Args, "--server.tls_cert_file=none.crt", "--server.tls_key_file=none.key")
			return []string{"none.crt"}
		}, 2, "server.tls_cert_file"},
		refusal{"certificate authorities that do not exist", func(_ *testing.T, cmd *exec.Cmd) []string {
			cmd.Args = append(cmd.Args, "--egress.ca_file=none.pem")
			return []string{"none.pem"}
		}, 2, "egress.ca_file"},
		refusal{"a port in use", func(t *testing.T, cmd *exec.Cmd) []string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			noError(t, err)
			t.Cleanup(func() { l.Close() })
			cmd.Args = append(cmd.Args, "--listen="+l.Addr().String())
			return []string{"server.listen", l.Addr().String(), "stop the program that uses this port"}
		}, 7, "cannot listen"},
		refusal{"an address of another machine", func(_ *testing.T, cmd *exec.Cmd) []string {
			cmd.Args = append(cmd.Args, "--metrics.listen=192.0.2.1:80")
			return []string{"metrics.listen"}
		}, 7, "cannot assign requested address; set another port or address of this machine"},
	)
}

func TestRefusedDatabase(t *testing.T) {
	t.Parallel()
	refuses(t,
		refusal{"a newer schema", alter("PRAGMA user_version = 99"), 3, "has schema 99 and this binary knows "},
		refusal{"a schema that was changed", alter("CREATE TABLE notes (id INTEGER)"), 4, "+ table notes"},
		refusal{"a file of another application", alter("PRAGMA application_id = 7"), 4, "set storage.path to another file"},
		refusal{"a file that is no database", func(t *testing.T, cmd *exec.Cmd) []string {
			noError(t, os.WriteFile(filepath.Join(cmd.Dir, "keyhook.db"), bytes.Repeat([]byte("no database. "), 999), 0o600))
			return []string{"left as it is", "storage.path", filepath.Join(cmd.Dir, "keyhook.db")}
		}, 4, "not a Keyhook database"},
		refusal{"a text file without a key", func(t *testing.T, cmd *exec.Cmd) []string {
			noError(t, os.WriteFile(filepath.Join(cmd.Dir, "keyhook.db"), []byte("my notes\n"), 0o600), os.Remove(filepath.Join(cmd.Dir, "keyhook.db.key")))
			return []string{"no database at all", "left as it is", "storage.path"}
		}, 4, "not a Keyhook database"},
		refusal{"the database of another program without a key", func(t *testing.T, cmd *exec.Cmd) []string {
			noError(t, os.Remove(filepath.Join(cmd.Dir, "keyhook.db")), os.Remove(filepath.Join(cmd.Dir, "keyhook.db.key")))
			change(t, filepath.Join(cmd.Dir, "keyhook.db"), "CREATE TABLE songs (id INTEGER)")
			return []string{"another application's tables", "set storage.path to another file"}
		}, 4, "not a Keyhook database"},
		refusal{"a file of which half is gone", func(t *testing.T, cmd *exec.Cmd) []string {
			noError(t, os.Truncate(filepath.Join(cmd.Dir, "keyhook.db"), 40960))
			return []string{"backup", filepath.Join(cmd.Dir, "keyhook.db")}
		}, 4, "database is damaged"},
		refusal{"a file that is damaged after a crash", damageAfterCrash, 4, "database is damaged"},
		refusal{"an empty file beside a key", func(t *testing.T, cmd *exec.Cmd) []string {
			noError(t, os.Truncate(filepath.Join(cmd.Dir, "keyhook.db"), 0))
			return []string{"keyhook.db.key", "backup", "start with an empty database"}
		}, 4, "empty or gone"},
		refusal{"no file beside a key", func(t *testing.T, cmd *exec.Cmd) []string {
			noError(t, os.Remove(filepath.Join(cmd.Dir, "keyhook.db")))
			return []string{"keyhook.db.key", "backup", "start with an empty database"}
		}, 4, "empty or gone"},
		refusal{"no file where there was one, whose key is a setting", func(t *testing.T, cmd *exec.Cmd) []string {
			noError(t, os.Remove(filepath.Join(cmd.Dir, "keyhook.db")), os.Remove(filepath.Join(cmd.Dir, "keyhook.db.key")))
			cmd.Env = append(cmd.Env, "KEYHOOK_ENCRYPTION_KEY="+strings.Repeat("ab", 32))
			start(t, cmd.Dir, cmd.Env...).end(syscall.SIGTERM)
			noError(t, os.Remove(filepath.Join(cmd.Dir, "keyhook.db")))
			return []string{"keyhook.db.lock says that it existed", "backup", "start with an empty database"}
		}, 4, "empty or gone"},
		refusal{"a directory in place of the file", func(t *testing.T, cmd *exec.Cmd) []string {
			noError(t, os.Mkdir(filepath.Join(cmd.Dir, "other"), 0o700))
			cmd.Args = append(cmd.Args, "--storage.path=other")
			return []string{"storage.path"}
		}, 4, "not a regular file"},
		refusal{"a directory in place of the file, as another user", func(t *testing.T, cmd *exec.Cmd) []string {
			uid := asNobody(t, cmd)
			noError(t, errors.Join(os.Mkdir(filepath.Join(cmd.Dir, "other"), 0o700), os.Chown(filepath.Join(cmd.Dir, "other"), uid, -1)))
			cmd.Args = append(cmd.Args, "--storage.path=other")
			return []string{"storage.path", "other/keyhook.db"} // not: chown of its parent directory
		}, 4, "not a regular file"},
		refusal{"a file that another process owns", func(t *testing.T, cmd *exec.Cmd) []string {
			p := start(t, cmd.Dir)
			return []string{"stop that process first", strconv.Itoa(p.cmd.Process.Pid)}
		}, 6, "database is in use"},
	)
}

// damageAfterCrash overwrites a page of the database, and leaves a write-ahead log as a crash does.
func damageAfterCrash(t *testing.T, cmd *exec.Cmd) []string {
	path := filepath.Join(cmd.Dir, "keyhook.db")
	db, err := sql.Open("sqlite", "file:"+path)
	noError(t, err)
	var page int64
	noError(t, db.QueryRow("SELECT rootpage FROM sqlite_schema WHERE name = 'attempts'").Scan(&page), db.Close())
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	noError(t, err)
	_, err = file.WriteAt(bytes.Repeat([]byte{0xff}, 4096), (page-1)*4096)
	noError(t, err, file.Close(), os.WriteFile(path+"-wal", make([]byte, 32), 0o600))
	return []string{"backup", path, "btreeInitPage"} // the last is a word of SQLite's check
}

func TestRefusedKey(t *testing.T) {
	t.Parallel()
	refuses(t,
		refusal{"a key that is gone", func(t *testing.T, cmd *exec.Cmd) []string {
			noError(t, os.Remove(filepath.Join(cmd.Dir, "keyhook.db.key")))
			return []string{"keyhook.db.key is gone", "encryption.key"}
		}, 5, "encryption key is missing"},
		refusal{"another key", func(_ *testing.T, cmd *exec.Cmd) []string {
			cmd.Env = append(cmd.Env, "KEYHOOK_ENCRYPTION_KEY="+strings.Repeat("ab", 32))
			return []string{"encryption.key"}
		}, 5, "does not fit the database"},
		refusal{"a key file without a key", func(t *testing.T, cmd *exec.Cmd) []string {
			noError(t, os.WriteFile(filepath.Join(cmd.Dir, "keyhook.db.key"), []byte("hunter2\n"), 0o600))
			return []string{"restore " + filepath.Join(cmd.Dir, "keyhook.db.key") + " with the key", "a new key cannot open the signing secrets"}
		}, 5, "line 1 of"},
		refusal{"a key file that may not be read", func(t *testing.T, cmd *exec.Cmd) []string {
			uid, file := asNobody(t, cmd), filepath.Join(cmd.Dir, "keyhook.db")
			noError(t, os.Chmod(file+".key", 0o000))
			give(t, uid, cmd.Dir, file, file+".key")
			return []string{"mode 0000", "; run: chmod u+rw " + file + ".key,"}
		}, 8, "keyhook.db.key, because it belongs to"},
	)
}

func TestRefusedPlace(t *testing.T) {
	t.Parallel()
	refuses(t,
		refusal{"no directory", func(_ *testing.T, cmd *exec.Cmd) []string {
			cmd.Args = append(cmd.Args, "--storage.path=no/such/keyhook.db")
			return []string{"storage.path", "mkdir -p no/such"}
		}, 8, "there is no directory no/such"},
		refusal{"a directory of another user", func(t *testing.T, cmd *exec.Cmd) []string {
			uid := asNobody(t, cmd)
			noError(t, os.Chmod(cmd.Dir, 0o555))
			t.Cleanup(func() { os.Chmod(cmd.Dir, 0o755) }) //nolint:errcheck // it is removed next
			if uid != nobody {
				return []string{"chmod u+rwx " + cmd.Dir}
			}
			return []string{"uid 65534, gid 65534", "belongs to uid 0, gid 0 (mode 0555)", "run as root: chown 65534:65534 " + cmd.Dir + ",", "storage.path"}
		}, 8, "may not use"},
		refusal{"a database of another user", func(t *testing.T, cmd *exec.Cmd) []string {
			if asNobody(t, cmd) != nobody {
				require(t, "root")
			}
			give(t, nobody, cmd.Dir)
			file := filepath.Join(cmd.Dir, "keyhook.db")
			return []string{"uid 0, gid 0 (mode 0600)", "run as root: chown 65534:65534 " + file + ","}
		}, 8, "may not use"},
		refusal{"files that a server of root has left", func(t *testing.T, cmd *exec.Cmd) []string {
			if asNobody(t, cmd) != nobody {
				require(t, "root")
			}
			file := filepath.Join(cmd.Dir, "keyhook.db")
			noError(t, os.WriteFile(file+"-wal", nil, 0o600), os.WriteFile(file+".lock", nil, 0o400))
			give(t, nobody, cmd.Dir, file)
			return []string{"run as root: chown 65534:65534 " + file + "-wal,"}
		}, 8, "may not use"},
		refusal{"a directory of another user that nobody else may enter", func(t *testing.T, cmd *exec.Cmd) []string {
			if asNobody(t, cmd) != nobody {
				require(t, "root")
			}
			hidden := filepath.Join(cmd.Dir, "data")
			noError(t, os.Mkdir(hidden, 0o700))
			cmd.Args = append(cmd.Args, "--storage.path="+hidden+"/keyhook.db")
			return []string{"if only Keyhook uses " + hidden + ", run as root: chown 65534:65534 " + hidden + ";"}
		}, 8, "may not use"},
		refusal{"a database that may not be written", func(t *testing.T, cmd *exec.Cmd) []string {
			uid, file := asNobody(t, cmd), filepath.Join(cmd.Dir, "keyhook.db")
			noError(t, os.Chmod(file, 0o444))
			give(t, uid, cmd.Dir, file, file+".key")
			return []string{"mode 0444", "; run: chmod u+rw " + file + ","}
		}, 8, "may not use"},
		refusal{"a network file system", onNetwork, 8, "is on nfs4"},
	)
}

// onNetwork covers the kernel's list of mounts with a file, for the one process.
func onNetwork(t *testing.T, cmd *exec.Cmd) []string {
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		require(t, "root on Linux")
	}
	unshare, mounts := tool(t, "unshare"), filepath.Join(t.TempDir(), "mountinfo")
	noError(t, os.WriteFile(mounts, []byte("1 0 254:1 / / rw - ext4 /dev/vda rw\n2 1 0:60 / "+cmd.Dir+" rw - nfs4 host:/export rw\n"), 0o600))
	script := `mount --bind "$0" /proc/$$/mountinfo && exec "$@"`
	cmd.Args = append([]string{unshare, "--mount", "sh", "-c", script, mounts, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = unshare
	return []string{cmd.Dir, "storage.path", "local disk"}
}
