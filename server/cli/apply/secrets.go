package apply

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/fault"
)

// secretLine is one line of a file with the secrets of new subscriptions.
type secretLine struct {
	Organization string `json:"organization"`
	ExternalID   string `json:"external_id"`
	Secret       string `json:"secret"`

	change change
}

// saveSecrets appends the secrets of subscriptions that are not created yet to a file. end closes the file. It first takes out again those
// that the server does not use.
func saveSecrets(name string, made []secretLine) (end func(used []secretLine) error, err error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fault.Advise(fmt.Errorf("cannot write secrets: %w", err), "choose another --secrets-file")
	}
	before, err := readSecrets(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	put := func(secrets []secretLine) error { // overwrites before it cuts, so a kill in between loses none of them
		var lines bytes.Buffer
		if len(secrets) > 0 && len(before) > 0 && !bytes.HasSuffix(before, []byte("\n")) { // an earlier run could not finish its line
			lines.WriteString("\n")
		}
		for _, one := range secrets {
			if err := json.NewEncoder(&lines).Encode(one); err != nil { //nolint:gosec // this file is where the secret belongs
				return err
			}
		}
		_, err := file.WriteAt(lines.Bytes(), int64(len(before)))
		return cmp.Or(err, file.Truncate(int64(len(before)+lines.Len())), file.Sync())
	}
	end = func(used []secretLine) (err error) {
		if len(used) < len(made) {
			err = put(used)
		}
		return errors.Join(err, file.Close())
	}
	if err := put(made); err != nil {
		return nil, errors.Join(err, end(nil))
	}
	return end, nil
}

// readSecrets reads the lines of earlier runs. It refuses a file with something else, such as a secret_file, which another line would make
// useless. It locks the file until it is closed, because two runs would take out each other's secrets. Some file systems have no locks.
func readSecrets(file *os.File) ([]byte, error) {
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", file.Name())
	case info.Mode().Perm()&0o077 != 0:
		return nil, fault.Advise(fmt.Errorf("other users may read %s", file.Name()), "run: chmod 600 %s", file.Name())
	case errors.Is(syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK):
		return nil, fault.Advise(fmt.Errorf("another apply is writing to %s", file.Name()), "wait for it, or choose another --secrets-file")
	}
	text, err := io.ReadAll(file)
	if len(text) > 0 && text[0] != '{' {
		return nil, fault.Advise(fmt.Errorf("%s has something else than secrets of apply", file.Name()), "choose another --secrets-file")
	}
	return text, err
}

// readSecret reads the imported secret of a new subscription; empty if it has none.
func (r *runner) readSecret(e *entry) (string, error) {
	name, imported := e.files[secretFile]
	if !imported {
		return "", nil
	}
	text, err := r.readIn(name)
	if err != nil {
		return "", err
	}
	return output.ParseSecret(text)
}

// readHeaders reads the files of headers. They have the form that --headers-file of the other commands has, but each name needs a value.
func (r *runner) readHeaders() {
	for _, e := range r.doc.entries {
		name, has := e.files[headersFile]
		if !has {
			continue
		}
		text, err := r.readIn(name)
		headers := map[string]any{}
		if err == nil {
			headers, err = output.ParseHeaders(text)
		}
		for name, value := range headers {
			if value == nil {
				err = fmt.Errorf("the header %s has no value in the file; write \"%s: value\"", name, name)
			}
		}
		if err != nil {
			r.doc.wrong(e.lines[headersFile], "%s: %v", headersFile, err)
		}
		e.fields["headers"] = headers
	}
}

// readIn reads a file that the file names. A name is relative to the directory of the file, so - is a name like any other.
func (r *runner) readIn(name string) (string, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Dir(r.File) + string(filepath.Separator) + name
	}
	return output.ReadFile(nil, name, output.MaxFlagFile)
}
