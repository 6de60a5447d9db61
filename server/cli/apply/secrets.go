package apply

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// secrets takes the secrets of new subscriptions: a file, or the standard output.
type secrets struct {
	file  *os.File // nil prints
	end   int64    // of the file, before the last secrets
	saved int
	out   output.Printer
}

// openSecrets opens the file before anything is created, so that no secret is lost because it cannot be written.
func openSecrets(name string, out output.Printer) (*secrets, error) {
	s := &secrets{out: out}
	if name == "" {
		return s, nil
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fault.Advise(fmt.Errorf("nothing was changed: cannot write secrets: %w", err), "choose another --secrets-file")
	}
	for _, prepare := range []func(*os.File) error{checkMode, checkContent, lock, (*os.File).Sync, endLine} {
		if err := prepare(file); err != nil {
			return nil, errors.Join(fmt.Errorf("nothing was changed: %w", err), file.Close())
		}
	}
	s.file = file
	return s, nil
}

func checkMode(file *os.File) error {
	info, err := file.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", file.Name())
	case info.Mode().Perm()&0o077 != 0:
		return fault.Advise(fmt.Errorf("other users may read %s", file.Name()), "run: chmod 600 %s", file.Name())
	}
	return nil
}

// lock locks the file until it is closed: two runs would write over each other's secrets. Some file systems have no locks.
func lock(file *os.File) error {
	if errors.Is(syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		return fault.Advise(fmt.Errorf("another apply is writing to %s", file.Name()), "wait for it, or choose another --secrets-file")
	}
	return nil
}

// checkContent refuses a file with something else than secrets, such as a secret_file, which another line would make useless.
func checkContent(file *os.File) error {
	first := make([]byte, 1)
	if n, err := file.ReadAt(first, 0); n == 1 && first[0] != '{' {
		return fault.Advise(fmt.Errorf("%s has something else than secrets of apply", file.Name()), "choose another --secrets-file")
	} else if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// endLine goes to the end of the file, and ends a line that an earlier run could not finish.
func endLine(file *os.File) error {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil || end == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := file.ReadAt(last, end-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = file.WriteString("\n")
	return err
}

// secretLine is one line of the file.
type secretLine struct {
	Organization string `json:"organization"`
	ExternalID   string `json:"external_id"`
	Secret       string `json:"secret"`

	name string // in the difference
}

// newSecret makes the secret of a subscription. key is its name in the difference.
func newSecret(e *entry, key string) secretLine {
	text := func(field string) string { value, _ := e.fields[field].(string); return value }
	return secretLine{text("organization"), text("external_id"), webhook.NewSecret().Reveal(), key}
}

// save writes the secrets of subscriptions that are not created yet. Without a file it does nothing.
func (s *secrets) save(made []secretLine) (err error) {
	if s.file == nil || len(made) == 0 {
		return nil
	}
	if s.end, err = s.file.Seek(0, io.SeekCurrent); err != nil {
		return err
	}
	var lines bytes.Buffer
	for _, one := range made {
		if err := json.NewEncoder(&lines).Encode(one); err != nil { //nolint:gosec // this file is where the secret belongs
			return err
		}
	}
	if _, err = s.file.Write(lines.Bytes()); err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return s.takeBack(fmt.Errorf("nothing was changed: write the secrets: %w", err))
	}
	return nil
}

// takeBack removes the last secrets, because their subscriptions were not created.
func (s *secrets) takeBack(cause error) error {
	if s.file == nil {
		return cause
	}
	_, err := s.file.Seek(s.end, io.SeekStart)
	return errors.Join(cause, s.file.Truncate(s.end), err)
}

// confirm ends the creation of subscriptions. err says why it is not certain that the server created them; nil if it is.
func (s *secrets) confirm(made []secretLine, err error) error {
	if err != nil && (s.file != nil || len(made) == 0) {
		return fault.Advise(err, "run the same command again; if the server made the changes nevertheless, it finds nothing to do")
	}
	var text strings.Builder
	for _, one := range made {
		fmt.Fprintf(&text, "secret of %s: %s\n", output.Escape(one.name), one.Secret)
	}
	if err != nil {
		return fmt.Errorf("%w (if the server made the changes nevertheless, these secrets are in use)\n%s", err, text.String())
	}
	if s.saved = len(made); s.file != nil || len(made) == 0 {
		return nil
	}
	if err := s.out.Write(text.String()); err != nil {
		return fmt.Errorf("%w (the subscriptions exist, with these secrets)\n%s", err, text.String())
	}
	return nil
}

func (s *secrets) close() error {
	if s.file == nil {
		if s.saved > 0 {
			s.out.Note("Store the secrets now. They are not shown again.")
		}
		return nil
	}
	if s.saved > 0 {
		s.out.Note("Wrote %s to %s.", output.Count(s.saved, "secret", "secrets"), s.file.Name())
	}
	return s.file.Close()
}

// readSecret reads the imported secret of a new subscription; empty if it has none.
func (r *runner) readSecret(e *entry) (string, error) {
	name, imported := e.files[secretFile]
	if !imported {
		return "", nil
	}
	text, err := readIn(r.directory, name)
	if err != nil {
		return "", err
	}
	return output.ParseSecret(text)
}

// readHeaders reads the files of headers. They have the form that --headers-file of the other commands has, but each name needs a value.
func (d *document) readHeaders(directory string) {
	for _, e := range d.entries {
		name, has := e.files[headersFile]
		if !has {
			continue
		}
		text, err := readIn(directory, name)
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
			d.wrong(e.lines[headersFile], "%s: %v", headersFile, err)
		}
		e.fields["headers"] = headers
	}
}

// readIn reads a file. Its name is relative to a directory, so - is a name like any other.
func readIn(directory, name string) (string, error) {
	if !filepath.IsAbs(name) {
		name = directory + string(filepath.Separator) + name
	}
	return output.ReadFile(nil, name, output.MaxFlagFile)
}
