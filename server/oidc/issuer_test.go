package oidc_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhook/keyhook/server/oidc"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

const audience = "keyhook"

// key is a key pair of an issuer.
type key struct {
	id, algorithm string
	private       crypto.Signer
	anyAlgorithm  bool // published without an algorithm
}

func newKey(id, algorithm string) key {
	var private crypto.Signer
	var err error
	switch algorithm[:2] {
	case "RS", "PS":
		private, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ES":
		curve := map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()}[algorithm]
		private, err = ecdsa.GenerateKey(curve, rand.Reader)
	default:
		_, private, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		panic(err)
	}
	return key{id: id, algorithm: algorithm, private: private}
}

// keys are the keys of most tests. Making one takes a while.
var keys = sync.OnceValue(func() (shared struct{ rsa, rsaPSS, ecdsa, ed, stranger key }) {
	shared.rsa, shared.ecdsa, shared.ed = newKey("rsa", "RS256"), newKey("ec", "ES256"), newKey("ed", "EdDSA")
	shared.rsaPSS = key{id: "pss", algorithm: "PS512", private: newKey("", "PS512").private}
	shared.stranger = newKey("rsa", "RS256") // it has the id of the issuer's own key
	return shared
})

var b64 = base64.RawURLEncoding.EncodeToString

// public returns the key as in a JWK set.
func (k key) public() map[string]any {
	shown := map[string]any{"kid": k.id, "use": "sig"}
	if !k.anyAlgorithm {
		shown["alg"] = k.algorithm
	}
	switch public := k.private.Public().(type) {
	case *rsa.PublicKey:
		maps.Copy(shown, map[string]any{"kty": "RSA", "n": b64(public.N.Bytes()), "e": b64(big.NewInt(int64(public.E)).Bytes())})
	case *ecdsa.PublicKey:
		point, _ := public.Bytes()
		half := len(point) / 2
		maps.Copy(shown, map[string]any{"kty": "EC", "crv": public.Params().Name, "x": b64(point[1 : 1+half]), "y": b64(point[1+half:])})
	case ed25519.PublicKey:
		maps.Copy(shown, map[string]any{"kty": "OKP", "crv": "Ed25519", "x": b64(public)})
	}
	return shown
}

var hashes = map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}

// sign signs with an algorithm, even if the key is for another one.
func (k key) sign(tb testing.TB, algorithm, input string) []byte {
	tb.Helper()
	if algorithm == "none" {
		return nil
	}
	hash, digest := hashes[algorithm[2:]], []byte(input)
	if hash != 0 {
		h := hash.New()
		h.Write(digest)
		digest = h.Sum(nil)
	}
	var signature []byte
	var err error
	switch private := k.private.(type) {
	case *rsa.PrivateKey:
		var o crypto.SignerOpts = hash
		if strings.HasPrefix(algorithm, "PS") {
			o = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
		}
		signature, err = private.Sign(rand.Reader, digest, o)
	case *ecdsa.PrivateKey:
		r, s, failed := ecdsa.Sign(rand.Reader, private, digest)
		size := (private.Params().BitSize + 7) / 8
		signature, err = append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...), failed
	default:
		signature, err = private.Sign(rand.Reader, digest, crypto.Hash(0))
	}
	if err != nil {
		tb.Fatal(err)
	}
	return signature
}

// token is a token before its signature. Tests change parts of it.
type token struct {
	header, claims map[string]any
	payload        string // instead of claims
	key            key
	algorithm      string // of the signature; empty: the algorithm in the header
}

func (x token) encode(tb testing.TB) string {
	tb.Helper()
	header, err := json.Marshal(x.header)
	if err != nil {
		tb.Fatal(err)
	}
	payload := []byte(x.payload)
	if x.payload == "" {
		if payload, err = json.Marshal(x.claims); err != nil {
			tb.Fatal(err)
		}
	}
	input := b64(header) + "." + b64(payload)
	algorithm := x.algorithm
	if algorithm == "" {
		algorithm, _ = x.header["alg"].(string)
	}
	return input + "." + b64(x.key.sign(tb, algorithm, input))
}

// hmacSigned signs with a symmetric secret. Attackers use a public key as the secret.
func hmacSigned(x token, secret []byte) string {
	header, _ := json.Marshal(x.header)
	payload, _ := json.Marshal(x.claims)
	input := b64(header) + "." + b64(payload)
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(input))
	return input + "." + b64(h.Sum(nil))
}

// issuer is an identity provider: its discovery document and its keys, over HTTP.
type issuer struct {
	url string

	mu        sync.Mutex
	keys      []map[string]any
	answer    http.HandlerFunc // of all requests, unless nil
	tokens    http.HandlerFunc // the token endpoint
	discovery map[string]any   // more fields of the discovery document
	asked     map[string]int   // by path
	strangers int              // requests for anything else
}

const (
	discoveryPath = "/.well-known/openid-configuration"
	keysPath      = "/keys"
	tokenPath     = "/token"
)

func newIssuer(published ...key) *issuer {
	i := &issuer{url: "https://login.example.com", asked: map[string]int{}}
	i.publish(published...)
	return i
}

func (i *issuer) publish(published ...key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = []map[string]any{}
	for _, k := range published {
		i.keys = append(i.keys, k.public())
	}
}

// do makes h answer all requests; nil restores the normal answers.
func (i *issuer) do(h http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer = h
}

func (i *issuer) requests(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked[path]
}

// ServeHTTP is the issuer's HTTP API.
func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked[r.URL.Path]++
	if i.answer != nil {
		answer := i.answer
		i.mu.Unlock()
		defer i.mu.Lock()
		answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case discoveryPath:
		document := map[string]any{
			"issuer": i.url, "jwks_uri": i.url + keysPath, "id_token_signing_alg_values_supported": []string{"RS256"},
			"authorization_endpoint": i.url + "/authorize?tenant=1", "token_endpoint": i.url + tokenPath,
		}
		maps.Copy(document, i.discovery)
		json.NewEncoder(w).Encode(document)
	case tokenPath:
		i.tokens(w, r)
	case keysPath:
		json.NewEncoder(w).Encode(map[string]any{"keys": i.keys})
	default:
		i.strangers++
		w.WriteHeader(http.StatusNotFound)
	}
}

// RoundTrip answers without a network, for tests in virtual time.
func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		i.ServeHTTP(w, r)
	}()
	select {
	case <-done:
		return w.Result(), nil
	case <-r.Context().Done():
		<-done
		return nil, r.Context().Err()
	}
}

// token returns a valid token.
func (i *issuer) token(k key) token {
	now := time.Now().Unix()
	return token{
		header: map[string]any{"alg": k.algorithm, "kid": k.id, "typ": "JWT"},
		claims: map[string]any{"iss": i.url, "aud": audience, "sub": "u-1", "iat": now, "exp": now + 300},
		key:    k,
	}
}

// verifier is the tested verifier with its log.
type verifier struct {
	*oidc.Verifier
	log  *lines
	stop func()
}

type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// run makes a verifier for the issuer and runs it until the test ends.
func run(tb testing.TB, i *issuer, change ...func(*oidc.Options)) verifier {
	tb.Helper()
	log := &lines{}
	o := oidc.Options{Issuer: i.url, Audience: audience, Transport: i, Logger: slog.New(slog.NewTextHandler(log, nil))}
	for _, c := range change {
		c(&o)
	}
	v := verifier{Verifier: oidc.New(o), log: log}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := v.Run(ctx); err != nil {
			tb.Errorf("run: %v", err)
		}
	})
	v.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	tb.Cleanup(v.stop)
	return v
}

// verify verifies a text as the server does: only if it looks like a token.
func (v verifier) verify(tb testing.TB, raw string) (access.Identity, error) {
	tb.Helper()
	c, ok := access.Foreign(raw)
	if !access.LooksForeign(raw) || !ok {
		return access.Identity{}, fault.New(fault.Unauthenticated, "refused unseen", "no form of a token")
	}
	return v.Verify(tb.Context(), c)
}

// want verifies a token and checks that it is refused with the code, or accepted if the code is empty. It returns the reason.
func (v verifier) want(tb testing.TB, raw, code string) (why string) {
	tb.Helper()
	identity, err := v.verify(tb, raw)
	if code == "" {
		if err != nil || identity.Subject == "" {
			tb.Errorf("refused: %v", err)
		}
		return ""
	}
	f, isFault := fault.As(err)
	if !isFault || f.Code != code || identity != (access.Identity{}) {
		tb.Fatalf("%+v, error %v; want %s", identity, err, code)
	}
	kind := fault.Unauthenticated
	if code == "issuer_unavailable" {
		kind = fault.Unavailable
	}
	if f.Kind != kind || f.Message == "" {
		tb.Errorf("kind %d, message %q", f.Kind, f.Message)
	}
	if code != "refused unseen" && (f.Unwrap() == nil || len(f.Unwrap().Error()) > 1000) {
		tb.Errorf("the cause for the log is %.2000v", f.Unwrap())
	}
	if len(raw) > 100 && strings.Contains(fmt.Sprint(err), raw[len(raw)-40:]) {
		tb.Errorf("the error shows the token: %v", err)
	}
	if f.Unwrap() == nil {
		return ""
	}
	return f.Unwrap().Error()
}
