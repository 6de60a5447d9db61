package config

import (
	"os"
	"strings"
)

const maxSecretFile = 4096

// SecretFile reads a file with a secret, which a setting that ends in _FILE or a flag names. It removes one line break at the end, which editors and echo add. Its errors
// show neither the text nor the path, because people sometimes write the secret itself where the path belongs.
func SecretFile(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", advise("cannot read the file: "+reason(err).Error(), "check the path and its permissions")
	case !info.Mode().IsRegular():
		return "", advise("the path does not lead to a regular file", "write the path of a file that contains only the secret")
	case info.Mode().Perm()&0o002 != 0:
		return "", advise("every user may change the file", "run chmod o-w on the file")
	}
	data, err := readAtMost(path, maxSecretFile)
	if err != nil {
		return "", advise("cannot read the file: "+reason(err).Error(), "write only the secret into the file, and check its permissions")
	}
	text, found := strings.CutSuffix(string(data), "\n")
	if found {
		text = strings.TrimSuffix(text, "\r")
	}
	if text == "" {
		return "", advise("the file is empty", "write the secret into the file")
	}
	return text, nil
}
