package config

import (
	"os"
	"strings"

	"github.com/keyhook/keyhook/storage/redact"
)

const maxSecretFile = 4096

// SecretFile reads a secret from the file that a flag of a command names. It follows the rules for settings that end in _FILE.
func SecretFile(path string) (redact.Text, error) {
	text, err := readSecret(path)
	return redact.New(text), err
}

// readSecret reads a file that holds a secret. It removes one line break at the end, which editors and echo add. Its errors
// show neither the text nor the path, because people sometimes write the secret itself where the path belongs.
func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", advise("names a file that cannot be read: "+reason(err).Error(), "check the path and its permissions")
	case !info.Mode().IsRegular():
		return "", advise("does not name a regular file", "write the path of a file that holds only the secret")
	case info.Mode().Perm()&0o002 != 0:
		return "", advise("names a file that anyone may write", "run chmod o-w on it")
	}
	data, err := readAtMost(path, maxSecretFile)
	if err != nil {
		return "", advise("names a file that cannot be read: "+reason(err).Error(), "write only the secret into it, and check its permissions")
	}
	text, found := strings.CutSuffix(string(data), "\n")
	if found {
		text = strings.TrimSuffix(text, "\r")
	}
	if text == "" {
		return "", advise("names an empty file", "write the secret into it")
	}
	return text, nil
}
