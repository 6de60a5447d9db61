package oidc_test

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
)

// TestForgeries has tokens that an attacker without a private key of the issuer could make. The public keys are known.
func TestForgeries(t *testing.T) {
	t.Parallel()
	twin := keys().rsa // the issuer's RSA key, published without an algorithm
	twin.id, twin.anyAlgorithm = "twin", true
	i := newIssuer(keys().rsa, keys().ecdsa, keys().ed, twin)
	i.serve(t)
	v := run(t, i, onTheWire)
	good := i.token(keys().rsa).encode(t)
	v.want(t, good, "")
	parts := strings.Split(good, ".")
	public := keys().rsa.private.Public().(*rsa.PublicKey)
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	stranger := keys().stranger
	foreign := newIssuer(stranger)
	foreign.serve(t)
	self, _ := json.Marshal(stranger.public())

	by := func(k key, header map[string]any) string {
		x := i.token(k)
		maps.Copy(x.header, header)
		return x.encode(t)
	}
	symmetric := func(algorithm, id string, secret []byte) string {
		x := i.token(keys().rsa)
		x.header["alg"], x.header["kid"] = algorithm, id
		return hmacSigned(x, secret)
	}
	flipped := func(part int) string {
		changed := append([]string{}, parts...)
		b, _ := base64.RawURLEncoding.DecodeString(changed[part])
		b[len(b)/2] ^= 1
		changed[part] = b64(b)
		return strings.Join(changed, ".")
	}
	claims := map[string]any{}
	payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
	_ = json.Unmarshal(payload, &claims)
	claims["sub"] = "somebody-else"
	changed, _ := json.Marshal(claims)

	for name, tt := range map[string]struct{ raw, code string }{
		"signed with another key under a known id":         {by(stranger, nil), "invalid_key"},
		"signed with another key under no id":              {by(stranger, map[string]any{"kid": ""}), "invalid_key"},
		"signed with another key of the issuer":            {by(keys().ecdsa, map[string]any{"kid": "ed"}), "invalid_key"},
		"unsigned, with the algorithm none":                {by(keys().rsa, map[string]any{"alg": "none"}), "invalid_key"},
		"unsigned, with a damaged header":                  {parts[0] + "x." + parts[1] + ".", "invalid_key"},
		"HS256 with the public key in DER":                 {symmetric("HS256", "rsa", der), "invalid_key"},
		"HS256 with the public key in PEM":                 {symmetric("HS256", "rsa", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), "invalid_key"},
		"HS256 with the modulus":                           {symmetric("HS256", "twin", public.N.Bytes()), "invalid_key"},
		"HS256 with nothing":                               {symmetric("HS256", "", nil), "invalid_key"},
		"HS256 under the id of an RSA key":                 {symmetric("RS256", "rsa", der), "invalid_key"},
		"an RSA key under ES256":                           {token{header: map[string]any{"alg": "ES256", "kid": "rsa"}, claims: i.token(keys().rsa).claims, key: keys().rsa, algorithm: "RS256"}.encode(t), "invalid_key"},
		"an RSA key under ES256, of no algorithm":          {token{header: map[string]any{"alg": "ES256", "kid": "twin"}, claims: i.token(keys().rsa).claims, key: keys().rsa, algorithm: "RS256"}.encode(t), "invalid_key"},
		"an ECDSA key under ES384":                         {token{header: map[string]any{"alg": "ES384", "kid": "ec"}, claims: i.token(keys().rsa).claims, key: keys().ecdsa, algorithm: "ES384"}.encode(t), "invalid_key"},
		"another algorithm than the key is for":            {by(keys().rsa, map[string]any{"alg": "RS512"}), "invalid_key"},
		"an algorithm that does not exist":                 {token{header: map[string]any{"alg": "XS256", "kid": "rsa"}, claims: i.token(keys().rsa).claims, key: keys().rsa, algorithm: "RS256"}.encode(t), "invalid_key"},
		"an algorithm that is not a string":                {token{header: map[string]any{"alg": 1, "kid": "rsa"}, claims: i.token(keys().rsa).claims, key: keys().rsa, algorithm: "RS256"}.encode(t), "invalid_key"},
		"no algorithm":                                     {token{header: map[string]any{"kid": "rsa"}, claims: i.token(keys().rsa).claims, key: keys().rsa, algorithm: "RS256"}.encode(t), "invalid_key"},
		"a key of its own in the header":                   {by(stranger, map[string]any{"jwk": json.RawMessage(self)}), "invalid_key"},
		"a key of its own in the header, of an unknown id": {by(stranger, map[string]any{"jwk": json.RawMessage(self), "kid": "mine"}), "invalid_key"},
		"the address of its own keys":                      {by(stranger, map[string]any{"jku": foreign.url + keysPath}), "invalid_key"},
		"the address of its own certificate":               {by(stranger, map[string]any{"x5u": foreign.url + "/cert"}), "invalid_key"},
		"a certificate of its own":                         {by(stranger, map[string]any{"x5c": []string{"AA=="}}), "invalid_key"},
		"an extension that must be understood":             {by(keys().rsa, map[string]any{"crit": []string{"exp"}, "exp": 1}), "invalid_key"},
		"an extension that the library supports":           {by(keys().rsa, map[string]any{"crit": []string{"b64"}, "b64": false}), "invalid_key"},
		"an empty list of extensions":                      {by(keys().rsa, map[string]any{"crit": []string{}}), "invalid_key"},
		"a logout token":                                   {by(keys().rsa, map[string]any{"typ": "logout+jwt"}), "wrong_token_type"},
		"a proof of possession":                            {by(keys().rsa, map[string]any{"typ": "dpop+jwt"}), "wrong_token_type"},
		"a type that is not a string":                      {by(keys().rsa, map[string]any{"typ": 1}), "wrong_token_type"},
		"a token in a token":                               {by(keys().rsa, map[string]any{"cty": "JWT"}), "wrong_token_type"},
		"an access token":                                  {by(keys().rsa, map[string]any{"typ": "at+jwt"}), ""},
		"an access token with the full media type":         {by(keys().rsa, map[string]any{"typ": "application/at+JWT"}), ""},
		"pointers that an honest issuer may add":           {by(keys().rsa, map[string]any{"jku": foreign.url, "x5u": foreign.url, "x5t": "AA", "jwk": json.RawMessage(self)}), ""},
		"other claims under the signature":                 {parts[0] + "." + b64(changed) + "." + parts[2], "invalid_key"},
		"a bit of the header changed":                      {flipped(0), "invalid_key"},
		"a bit of the payload changed":                     {flipped(1), "invalid_key"},
		"a bit of the signature changed":                   {flipped(2), "invalid_key"},
		"no signature":                                     {parts[0] + "." + parts[1] + ".", "invalid_key"},
		"no payload":                                       {parts[0] + ".." + parts[2], "invalid_key"},
		"half a signature":                                 {good[:len(good)-len(parts[2])/2], "invalid_key"},
		"two signatures":                                   {good + "." + parts[2], "refused unseen"},
		"padding":                                          {good + "=", "refused unseen"},
		"the other alphabet of base64":                     {parts[0] + "." + parts[1] + "." + strings.Repeat("+/", 128), "refused unseen"},
		"white space inside":                               {parts[0] + "." + parts[1] + ". " + parts[2], "refused unseen"},
		"the JSON form":                                    {`{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, "refused unseen"},
		"nine kilobytes":                                   {good + strings.Repeat("A", 9000), "refused unseen"},
		"eight kilobytes":                                  {parts[0] + "." + strings.Repeat("e", 8000-len(parts[0])-len(parts[2])) + "." + parts[2], "invalid_key"},
		"a header that nests":                              {b64(bytes.Repeat([]byte(`{"a":`), 1000)) + ".e30.AA", "invalid_key"},
		"a header with its algorithm twice":                {b64([]byte(`{"alg":"none","alg":"RS256","kid":"rsa"}`)) + "." + parts[1] + "." + parts[2], "invalid_key"},
	} {
		t.Run(name, func(t *testing.T) { v.want(t, tt.raw, tt.code) })
	}
	t.Run("cause no request to the addresses in them", func(t *testing.T) {
		if n := foreign.requests(keysPath) + foreign.requests("/cert") + foreign.requests("/"); n > 0 {
			t.Errorf("%d times", n)
		}
		if n := i.requests(keysPath); n != 1 {
			t.Errorf("the issuer was asked %d times", n)
		}
	})
}

func FuzzBearer(f *testing.F) {
	i := newIssuer(keys().ed, keys().ecdsa)
	v := run(f, i)
	good := i.token(keys().ed).encode(f)
	v.want(f, good, "")
	f.Add(good[:len(good)-2])
	for _, seed := range []string{"", "..", "eyJ9.e30.", "e30.e30.e30", "eyJhbGciOiJub25lIn0.e30.", strings.Repeat("e", 9000) + ".."} {
		f.Add(seed)
	}
	for _, algorithm := range []string{"none", "HS256", "EdDSA", "ES256", "PS512"} {
		x := i.token(keys().stranger)
		x.header["alg"], x.header["kid"] = algorithm, "ed"
		if algorithm == "HS256" {
			f.Add(hmacSigned(x, []byte("secret")))
			continue
		}
		x.algorithm = "RS256"
		f.Add(x.encode(f))
	}
	f.Fuzz(func(t *testing.T, raw string) {
		looks := access.LooksForeign(raw)
		c, ok := access.Foreign(raw)
		if !looks || !ok || strings.HasPrefix(raw, good[:len(good)-1]) { // the last character has unused bits
			return
		}
		if identity, err := v.Verify(t.Context(), c); err == nil || identity != (access.Identity{}) {
			t.Errorf("accepted: %+v", identity)
		}
	})
}
