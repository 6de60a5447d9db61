package egress

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

// Roots returns whom to trust: the system's certificate authorities and those of a PEM file of the operator's. With no
// file name it returns nil, which stands for the system's. A file without a certificate, or with one that cannot be
// read, is an error: every delivery that it was meant for would fail.
func Roots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read certificate authorities: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's certificate authorities: %w", err)
	}
	added := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("certificate authorities in %s: found %s where only CERTIFICATE belongs", file, block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities in %s: certificate %d: %w", file, added+1, err)
		}
		pool.AddCert(certificate)
		added++
	}
	if added == 0 {
		return nil, fmt.Errorf("certificate authorities in %s: there is no PEM certificate", file)
	}
	return pool, nil
}
