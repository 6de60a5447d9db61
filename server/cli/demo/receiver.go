package demo

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/keyhook/keyhook/server/cli/receive"
)

// delivery is one request that the receiver got.
type delivery struct {
	header http.Header
	body   []byte
	status int // of the response
}

// receiver is an HTTPS server that keeps the deliveries it gets, and fails on demand.
type receiver struct {
	url      string
	got      chan delivery
	failures atomic.Int64
}

// newReceiver starts a receiver with a new certificate, and writes the certificate to a file for the server to trust. The receiver ends
// with ctx.
func newReceiver(ctx context.Context, file string) (*receiver, error) {
	certificate, text, err := newCertificate()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "https://" + l.Addr().String() + "/hook", got: make(chan delivery, 16)}
	go func() { _ = receive.Serve(ctx, l, r) }() // without it, no delivery arrives
	return r, nil
}

// ServeHTTP keeps the delivery and responds with 204, or with 503 as often as fail asked for.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, receive.MaxBody))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	status := http.StatusNoContent
	if r.failures.Add(-1) >= 0 {
		status = http.StatusServiceUnavailable
	}
	r.got <- delivery{req.Header.Clone(), body, status}
	w.WriteHeader(status)
}

// fail makes the next n deliveries fail.
func (r *receiver) fail(n int64) { r.failures.Store(n) }

// next waits for a delivery.
func (r *receiver) next(ctx context.Context) (delivery, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("no delivery arrived within %s", wait))
	defer cancel()
	select {
	case d := <-r.got:
		return d, nil
	case <-ctx.Done():
		return delivery{}, context.Cause(ctx)
	}
}

// newCertificate makes a certificate for the loopback address that is valid for a day, and returns it as PEM too.
func newCertificate() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Keyhook demo receiver"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key) // it signs itself
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
