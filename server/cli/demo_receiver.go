package cli

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
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// delivery is a request that a receiver got.
type delivery struct {
	header   http.Header
	body     []byte
	answered int
}

// receiver is an HTTPS server that keeps what it gets and can be told to fail.
type receiver struct {
	url      string
	got      chan delivery
	failures atomic.Int64
	server   *http.Server
}

// newReceiver starts a receiver under a certificate of its own making, and writes the CA that signed it to caFile.
func newReceiver(caFile string) (*receiver, error) {
	certificate, ca, err := newCertificate()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(caFile, ca, 0o600); err != nil {
		return nil, err
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "https://" + l.Addr().String() + "/hook", got: make(chan delivery, 16)}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: demoWait, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = r.server.Serve(l) }() // ends with Close
	return r, nil
}

// ServeHTTP keeps the delivery and answers 204, or 503 as often as it was told to fail.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
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

// fail has the next n deliveries fail.
func (r *receiver) fail(n int64) { r.failures.Store(n) }

// next waits for a delivery.
func (r *receiver) next(ctx context.Context) (delivery, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, demoWait, fmt.Errorf("no delivery came within %s", demoWait))
	defer cancel()
	select {
	case d := <-r.got:
		return d, nil
	case <-ctx.Done():
		return delivery{}, context.Cause(ctx)
	}
}

// Close stops the receiver.
func (r *receiver) Close() error { return r.server.Close() }

// newCertificate makes a CA and a certificate of it for the loopback address, both good for a day.
func newCertificate() (tls.Certificate, []byte, error) {
	none := tls.Certificate{}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return none, nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Keyhook demo CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return none, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return none, nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "Keyhook demo receiver"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return none, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), nil
}
