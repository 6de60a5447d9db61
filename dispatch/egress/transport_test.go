package egress_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/dispatch/egress"
)

var loopback = egress.Policy{AllowedNetworks: networks("127.0.0.0/8", "::1/128")}

// serveTLS starts an HTTPS receiver, changed by configure, and returns it with a pool that trusts it.
func serveTLS(t *testing.T, handler http.HandlerFunc, configure func(*httptest.Server)) (*httptest.Server, *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if configure != nil {
		configure(s)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s, pool
}

func TestTransport(t *testing.T) {
	t.Parallel()

	t.Run("it speaks HTTP/1.1 to a receiver that offers HTTP/2", func(t *testing.T) {
		t.Parallel()
		var proto, encoding atomic.Value
		s, pool := serveTLS(t, func(_ http.ResponseWriter, r *http.Request) {
			proto.Store(r.Proto)
			encoding.Store(r.Header.Get("Accept-Encoding"))
		}, func(s *httptest.Server) { s.EnableHTTP2 = true })
		if err := post(t, egress.NewTransport(egress.Options{Policy: loopback, Roots: pool}), s.URL); err != nil {
			t.Fatal(err)
		}
		if proto.Load() != "HTTP/1.1" || encoding.Load() != "" {
			t.Errorf("%s, Accept-Encoding %q", proto.Load(), encoding.Load())
		}
	})

	t.Run("it trusts only the given authorities", func(t *testing.T) {
		t.Parallel()
		s, pool := serveTLS(t, func(http.ResponseWriter, *http.Request) {}, nil)
		err := post(t, egress.NewTransport(egress.Options{Policy: loopback, Roots: x509.NewCertPool()}), s.URL)
		if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok {
			t.Errorf("unknown authority: %v", err)
		}
		z := newZone(t)
		z.add("wrong.test", []string{"127.0.0.1"})
		tr := egress.NewTransport(egress.Options{Policy: loopback, Roots: pool, Resolver: z.resolver()})
		err = post(t, tr, strings.Replace(s.URL, "127.0.0.1", "wrong.test", 1))
		if _, ok := errors.AsType[x509.HostnameError](err); !ok {
			t.Errorf("another host's certificate: %v", err)
		}
	})

	t.Run("it refuses TLS 1.1", func(t *testing.T) {
		t.Parallel()
		s, pool := serveTLS(t, func(http.ResponseWriter, *http.Request) {}, func(s *httptest.Server) {
			s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
		})
		if err := post(t, egress.NewTransport(egress.Options{Policy: loopback, Roots: pool}), s.URL); err == nil {
			t.Error("the request went through")
		}
	})

	t.Run("it does not decompress responses", func(t *testing.T) {
		t.Parallel()
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		io.CopyN(w, zeros{}, 1<<20)
		w.Close()
		s, pool := serveTLS(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(packed.Bytes())
		}, nil)
		tr := egress.NewTransport(egress.Options{Policy: loopback, Roots: pool})
		defer tr.CloseIdleConnections()
		res, err := (&http.Client{Transport: tr}).Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if got, err := io.ReadAll(res.Body); err != nil || !bytes.Equal(got, packed.Bytes()) {
			t.Errorf("%d bytes, %v; %d were sent", len(got), err, packed.Len())
		}
	})

	t.Run("it refuses a header of more than 64 KiB", func(t *testing.T) {
		t.Parallel()
		for size, ok := range map[int]bool{32 << 10: true, 128 << 10: false} {
			s, pool := serveTLS(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Large", strings.Repeat("a", size))
			}, nil)
			if err := post(t, egress.NewTransport(egress.Options{Policy: loopback, Roots: pool}), s.URL); (err == nil) != ok {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
	})
}

func TestTransportConnections(t *testing.T) {
	t.Parallel()

	t.Run("it keeps the configured number of connections to one host", func(t *testing.T) {
		t.Parallel()
		const slots, rounds = 20, 5
		var conns atomic.Int64
		arrived := make(chan struct{}, slots)
		release := make(chan struct{})
		s, pool := serveTLS(t, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-release }, func(s *httptest.Server) {
			s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					conns.Add(1)
				}
			}
		})
		tr := egress.NewTransport(egress.Options{Policy: loopback, Roots: pool, MaxIdlePerHost: slots})
		defer tr.CloseIdleConnections()
		client := &http.Client{Transport: tr}
		for range rounds {
			var wg sync.WaitGroup
			for range slots {
				wg.Go(func() {
					res, err := client.Get(s.URL)
					if err != nil {
						t.Error(err)
						return
					}
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
				})
			}
			for range slots { // all at once: none waits for another inside the transport
				<-arrived
			}
			for range slots {
				release <- struct{}{}
			}
			wg.Wait()
		}
		// A connection may return to the pool a moment after its body was read. So a round may open a few new ones.
		if n := conns.Load(); n < slots || n > slots*rounds/2 {
			t.Errorf("%d connections for %d rounds of %d requests", n, rounds, slots)
		}
	})

	t.Run("it gives up a TLS handshake after five seconds", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			client, server := net.Pipe()
			defer server.Close()
			go io.Copy(io.Discard, server) // accepts data and never answers
			tr := egress.NewTransport(egress.Options{})
			tr.DialContext = func(context.Context, string, string) (net.Conn, error) { return client, nil }
			begin := time.Now()
			if err := post(t, tr, "https://receiver.test/"); err == nil || time.Since(begin) != 5*time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		})
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestRoots(t *testing.T) {
	t.Parallel()
	s, _ := serveTLS(t, func(http.ResponseWriter, *http.Request) {}, nil)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	write := func(t *testing.T, text []byte) string {
		t.Helper()
		name := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}

	t.Run("without a file, the roots are the system's", func(t *testing.T) {
		t.Parallel()
		if pool, err := egress.Roots(""); pool != nil || err != nil {
			t.Errorf("got %v, %v", pool, err)
		}
	})

	t.Run("the roots include every certificate of the file", func(t *testing.T) {
		t.Parallel()
		text := slices.Concat([]byte("# the operator's\n"), selfSigned(t), authority)
		pool, err := egress.Roots(write(t, text))
		if err != nil {
			t.Fatal(err)
		}
		if err := post(t, egress.NewTransport(egress.Options{Policy: loopback, Roots: pool}), s.URL); err != nil {
			t.Error(err)
		}
	})

	t.Run("the roots include the system's beside those of the file", func(t *testing.T) {
		t.Parallel()
		pool, err := egress.Roots(write(t, authority))
		if err != nil {
			t.Fatal(err)
		}
		want, err := x509.SystemCertPool()
		if err != nil {
			t.Fatal(err)
		}
		want.AddCert(s.Certificate())
		if !pool.Equal(want) {
			t.Error("the pool is another")
		}
	})

	for name, text := range map[string][]byte{
		"is empty":                    nil,
		"is no PEM":                   []byte("certificate"),
		"holds a key":                 pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}),
		"holds a broken certificate":  slices.Concat(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})),
		"holds a key behind its last": slices.Concat(authority, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})),
	} {
		t.Run("a file that "+name+" is an error", func(t *testing.T) {
			t.Parallel()
			if _, err := egress.Roots(write(t, text)); err == nil {
				t.Error("no error")
			}
		})
	}

	t.Run("a missing file is an error", func(t *testing.T) {
		t.Parallel()
		if _, err := egress.Roots(filepath.Join(t.TempDir(), "none.pem")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

// selfSigned returns another authority.
func selfSigned(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
