package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/config"
)

func TestCertificate(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err1 := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	private, err2 := x509.MarshalPKCS8PrivateKey(key)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	certificate := write(t, "tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o600)
	secret := write(t, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})), 0o600)

	t.Run("is nil for plain HTTP", func(t *testing.T) {
		t.Parallel()
		if got, err := (config.Server{}).Certificate(); got != nil || err != nil {
			t.Errorf("%v, error %v", got, err)
		}
	})
	t.Run("is read from its two files, for TLS 1.2 and above", func(t *testing.T) {
		t.Parallel()
		got, err := config.Server{TLSCertFile: certificate, TLSKeyFile: secret}.Certificate()
		if err != nil || len(got.Certificates) != 1 || got.MinVersion != tls.VersionTLS12 {
			t.Errorf("%+v, error %v", got, err)
		}
	})
	t.Run("that cannot be read is a problem that names the settings", func(t *testing.T) {
		t.Parallel()
		for _, s := range []config.Server{
			{TLSCertFile: filepath.Join(t.TempDir(), "none"), TLSKeyFile: secret}, {TLSCertFile: certificate, TLSKeyFile: certificate},
		} {
			if _, err := s.Certificate(); err == nil || !strings.Contains(err.Error(), "server.tls_cert_file, server.tls_key_file: ") {
				t.Errorf("error %v", err)
			}
		}
	})
}
