package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/fault"
)

// secrets takes the secrets of new subscriptions: a file, or the standard output.
type secrets struct {
	file  *os.File // nil prints
	end   int64    // of the file, before the last secret
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
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", name)
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = fault.Advise(fmt.Errorf("other users may read %s", name), "run: chmod 600 %s", name)
	}
	if err == nil {
		err = checkContent(file)
	}
	if err == nil {
		err = lock(file)
	}
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = endLine(file)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("nothing was changed: %w", err), file.Close())
	}
	s.file = file
	return s, nil
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
}

// save writes the secret of a subscription that is not created yet. Without a file it does nothing.
func (s *secrets) save(w *wanted, secret string) (err error) {
	if s.file == nil {
		return nil
	}
	line, err := json.Marshal(secretLine{ //nolint:gosec // this file is where the secret belongs
		w.text("organization"), w.text("external_id"), secret})
	if err != nil {
		return err
	}
	if s.end, err = s.file.Seek(0, io.SeekCurrent); err != nil {
		return err
	}
	if _, err = s.file.Write(append(line, '\n')); err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return s.takeBack(fmt.Errorf("the subscription was not created: write its secret: %w", err))
	}
	return nil
}

// takeBack removes the last secret, because its subscription was not created.
func (s *secrets) takeBack(cause error) error {
	if s.file == nil {
		return cause
	}
	_, err := s.file.Seek(s.end, io.SeekStart)
	return errors.Join(cause, s.file.Truncate(s.end), err)
}

// confirm ends the creation of a subscription. err says why it is not certain that the server created it; nil if it is.
func (s *secrets) confirm(w *wanted, secret string, err error) error {
	if err != nil && s.file != nil {
		return fmt.Errorf("%w (if the server created the subscription nevertheless, its secret is in the file)", err)
	}
	if err != nil {
		return fmt.Errorf("%w (if the server created the subscription nevertheless, its secret is %s)", err, secret)
	}
	s.saved++
	if s.file != nil {
		return nil
	}
	if err := s.out.Write(fmt.Sprintf("secret of %s: %s\n", output.Escape(w.name), secret)); err != nil {
		return fmt.Errorf("%w (the subscription exists, and its secret is %s)", err, secret)
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

// refused reports whether the server has certainly not done what it was asked.
func refused(err error) bool {
	status := statusOf(err)
	return status != 0 && status < http.StatusInternalServerError
}
