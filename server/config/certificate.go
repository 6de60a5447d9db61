package config

import (
	"crypto/tls"
	"fmt"
)

// Certificate reads the certificate to serve HTTPS with; nil where the server speaks plain HTTP.
func (s Server) Certificate() (*tls.Config, error) {
	if s.TLSCertFile == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(s.TLSCertFile, s.TLSKeyFile)
	if err != nil {
		return nil, fmt.Errorf("server.tls_cert_file, server.tls_key_file: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
