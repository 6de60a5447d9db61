package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/socket"
)

// absent says why the server of a database on this machine does not answer.
func absent(err error, database, path string) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the socket %s is %s's: run this as that user or as root, or name a server with --%s and --%s", path, owner(path), flagURL, flagToken)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no server is running on %s (%s): start it with \"keyhook serve\", or name another with --storage.path, or a remote one with --%s and --%s",
			database, path, flagURL, flagToken)
	case errors.Is(err, socket.ErrStranger):
		return err
	}
	return fmt.Errorf("the server on %s does not answer: %w; its log may say why", database, err)
}

// owner names whose a file is.
func owner(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return "another user"
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "another user"
	}
	id := strconv.FormatUint(uint64(stat.Uid), 10)
	if known, err := user.LookupId(id); err == nil {
		return known.Username
	}
	return "uid " + id
}

// unreachable says why a server elsewhere does not answer.
func unreachable(err error, base string) error {
	var unverified *tls.CertificateVerificationError
	var notTLS tls.RecordHeaderError
	var unknown *net.DNSError
	switch {
	case errors.As(err, &unverified):
		return fmt.Errorf("%s shows a certificate that cannot be trusted: %w; add its authority to this machine's (or to the file SSL_CERT_FILE names)", base, unverified.Err)
	case errors.As(err, &notTLS):
		return fmt.Errorf("%s does not speak TLS: try http://, if what is between is trusted", base)
	case errors.As(err, &unknown):
		return fmt.Errorf("%s cannot be reached: there is no host %s; check --%s", base, output.Quote(unknown.Name), flagURL)
	}
	return fmt.Errorf("%s cannot be reached: %w; check --%s, and whether the server runs", base, err, flagURL)
}
