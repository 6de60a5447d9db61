package client

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
	"github.com/keyhook/keyhook/storage/fault"
)

// explainLocal says why the server of a database on this machine does not respond, and what to do.
func explainLocal(err error, database, path string) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fault.Advise(fmt.Errorf("the socket %s belongs to %s", path, owner(path)),
			"run this command as that user or as root, or give --%s and --%s", FlagURL, FlagToken)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fault.Advise(fmt.Errorf("no server is running for %s (socket %s)", database, path),
			"start the server with \"keyhook serve\", give another database with --storage.path, or give --%s and --%s", FlagURL, FlagToken)
	case errors.Is(err, socket.ErrForeignProcess):
		return err
	}
	return fault.Advise(fmt.Errorf("the server of the database %s does not respond: %w", database, err), "look at the log of the server")
}

// owner returns the name of the user who owns a file.
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

// explainRemote says why a server at a URL does not respond, and what to do.
func explainRemote(err error, base string) error {
	var unverified *tls.CertificateVerificationError
	var notTLS tls.RecordHeaderError
	var unknown *net.DNSError
	switch {
	case errors.As(err, &unverified):
		return fault.Advise(fmt.Errorf("the certificate of %s is not trusted: %w", base, unverified.Err),
			"add its certificate authority to the system's, or set SSL_CERT_FILE to a file with it")
	case errors.As(err, &notTLS):
		return fault.Advise(fmt.Errorf("%s does not speak TLS", base), "give an http:// URL if you trust the network")
	case errors.As(err, &unknown):
		return fault.Advise(fmt.Errorf("cannot reach %s: there is no host %s", base, output.Quote(unknown.Name)), "check --%s", FlagURL)
	}
	return fault.Advise(fmt.Errorf("cannot reach %s: %w", base, err), "check --%s, and whether the server is running", FlagURL)
}
