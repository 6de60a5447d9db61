package config

import (
	"errors"
	"os"
	"strings"

	"github.com/keyhook/keyhook/storage/redact"
)

const maxSecretFile = 4096

// SecretFile reads a secret out of the file that a command's own flag names, by the rules of settings that end in _FILE.
// Its errors show neither the text nor the path.
func SecretFile(path string) (redact.Text, error) {
	text, err := readSecret(path)
	return redact.New(text), err
}

// readSecret reads the file that holds a secret, without one line break at its end, as editors and echo leave it. Its
// errors show neither the text nor the path, since a secret given in place of a path is a likely mistake.
func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", errors.New("cannot read the file that it names: " + reason(err).Error())
	case !info.Mode().IsRegular():
		return "", errors.New("names something that is no file")
	case info.Mode().Perm()&0o002 != 0:
		return "", errors.New("names a file that anyone may write; run chmod o-w on it")
	}
	data, err := readAtMost(path, maxSecretFile)
	if err != nil {
		return "", errors.New("cannot read the file that it names: " + reason(err).Error())
	}
	text, found := strings.CutSuffix(string(data), "\n")
	if found {
		text = strings.TrimSuffix(text, "\r")
	}
	if text == "" {
		return "", errors.New("names an empty file; put the secret into it")
	}
	return text, nil
}
