package config

import "crypto/tls"

// Certificate reads the certificate to serve HTTPS with; nil where the server speaks plain HTTP. The
// error is Problems.
func (s Server) Certificate() (*tls.Config, error) {
	if s.TLSCertFile == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(s.TLSCertFile, s.TLSKeyFile)
	if err != nil {
		return nil, Problems{{Setting: "server.tls_cert_file, server.tls_key_file", Message: err.Error()}}
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
