package egress

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

// Roots returns the trusted certificate authorities: those of the system and those of the operator's PEM file. Without
// a file name it returns nil, which means those of the system. A file without a certificate, or with an unreadable one,
// is an error. Every delivery that needs it would fail.
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
			return nil, fmt.Errorf("certificate authorities in %s: found a PEM block of type %s; keep only CERTIFICATE blocks", file, block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities in %s: certificate %d: %w", file, added+1, err)
		}
		pool.AddCert(certificate)
		added++
	}
	if added == 0 {
		return nil, fmt.Errorf("certificate authorities in %s: found no PEM certificate; add at least one", file)
	}
	return pool, nil
}
