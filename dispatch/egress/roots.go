package egress

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

// Roots returns the trusted certificate authorities: the system's, and the certificates in the operator's PEM file. Without
// a file name it returns nil, which means the system's only. A file without a certificate, or with an unreadable one,
// is an error, because every delivery that needs the certificate would fail.
func Roots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate authorities: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate authorities of the system: %w", err)
	}
	added := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s has a PEM block of type %s, but only CERTIFICATE blocks are allowed", file, block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("cannot read certificate %d in %s: %w", added+1, file, err)
		}
		pool.AddCert(certificate)
		added++
	}
	if added == 0 {
		return nil, fmt.Errorf("%s has no PEM certificate", file)
	}
	return pool, nil
}
