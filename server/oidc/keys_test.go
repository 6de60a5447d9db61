package oidc_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server/oidc"
)

// inBubble runs a test in virtual time, with an issuer that has the key ed.
func inBubble(t *testing.T, name string, test func(t *testing.T, i *issuer, v verifier)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			i := newIssuer(keys().ed)
			v := run(t, i)
			test(t, i, v)
			v.stop()
		})
	})
}

func down(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }

// renamed returns a key of the tests under another id.
func renamed(id string) key {
	k := keys().ecdsa
	k.id = id
	return k
}

func TestKeys(t *testing.T) {
	t.Parallel()

	inBubble(t, "a new key counts at the first token that names it", func(t *testing.T, i *issuer, v verifier) {
		v.want(t, i.token(keys().ed).encode(t), "")
		time.Sleep(31 * time.Second)
		i.publish(keys().ed, keys().ecdsa)
		v.want(t, i.token(keys().ecdsa).encode(t), "")
		v.want(t, i.token(keys().ed).encode(t), "")
		if n := i.requests(keysPath); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
	inBubble(t, "a new key counts also if the issuer was asked just before it had the key", func(t *testing.T, i *issuer, v verifier) {
		v.want(t, i.token(keys().ed).encode(t), "")
		time.Sleep(5*time.Minute + 2*time.Second)
		i.publish(keys().ed, keys().ecdsa)
		if n := i.requests(keysPath); n != 2 {
			t.Errorf("asked %d times", n)
		}
		v.want(t, i.token(keys().ecdsa).encode(t), "")
	})
	inBubble(t, "tokens with unknown keys cause at most one request to the issuer in 30 seconds", func(t *testing.T, i *issuer, v verifier) {
		v.want(t, i.token(keys().ed).encode(t), "")
		time.Sleep(30 * time.Second)
		began := time.Now()
		for n := range 600 { // a minute of them
			v.want(t, i.token(renamed(fmt.Sprint("x", n))).encode(t), "invalid_key")
			time.Sleep(100 * time.Millisecond)
		}
		if n := i.requests(keysPath); n != 3 || time.Since(began) < time.Minute { // at the start, and twice
			t.Errorf("asked %d times in %s", n, time.Since(began))
		}
		time.Sleep(30 * time.Second)
		v.want(t, i.token(renamed("y")).encode(t), "invalid_key")
		if n := i.requests(keysPath); n != 4 {
			t.Errorf("asked %d times", n)
		}
	})
	inBubble(t, "callers who want an unknown key at the same time share one request to the issuer", func(t *testing.T, i *issuer, v verifier) {
		v.want(t, i.token(keys().ed).encode(t), "")
		time.Sleep(time.Minute)
		i.do(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			i.do(nil)
			i.publish(keys().ed, keys().ecdsa)
			i.ServeHTTP(w, r)
		})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { v.want(t, i.token(keys().ecdsa).encode(t), "") })
		}
		synctest.Wait() // all of them wait for the issuer
		at := time.Now()
		v.want(t, i.token(keys().ed).encode(t), "")
		if time.Since(at) > 0 {
			t.Errorf("a token whose key is known has waited %s for the issuer", time.Since(at))
		}
		wg.Wait()
		if n := i.requests(discoveryPath); n != 3 { // the second is the one that passed the request on
			t.Errorf("asked %d times", n)
		}
	})
	inBubble(t, "a removed key counts for at most five more minutes", func(t *testing.T, i *issuer, v verifier) {
		v.want(t, i.token(keys().ed).encode(t), "")
		i.publish(keys().ecdsa)
		time.Sleep(5*time.Minute + time.Second)
		v.want(t, i.token(keys().ed).encode(t), "invalid_key")
		v.want(t, i.token(keys().ecdsa).encode(t), "")
	})
	inBubble(t, "when the issuer removes all keys, none counts", func(t *testing.T, i *issuer, v verifier) {
		v.want(t, i.token(keys().ed).encode(t), "")
		i.publish()
		time.Sleep(5*time.Minute + time.Second)
		v.want(t, i.token(keys().ed).encode(t), "issuer_unavailable")
		i.publish(keys().ed)
		time.Sleep(30 * time.Second)
		v.want(t, i.token(keys().ed).encode(t), "")
	})
}

func TestKeysWithoutIssuer(t *testing.T) {
	t.Parallel()

	inBubble(t, "while the issuer is down, only the known keys count", func(t *testing.T, i *issuer, v verifier) {
		v.want(t, i.token(keys().ed).encode(t), "")
		i.do(down)
		for range 20 {
			time.Sleep(10 * time.Minute)
			v.want(t, i.token(keys().ed).encode(t), "")
			v.want(t, i.token(keys().ecdsa).encode(t), "issuer_unavailable")
			x := i.token(keys().stranger) // under the name of a key that is known
			x.header["kid"] = "ed"
			x.algorithm, x.header["alg"] = "RS256", "EdDSA"
			v.want(t, x.encode(t), "invalid_key")
		}
		i.do(nil)
		i.publish(keys().ecdsa)
		time.Sleep(31 * time.Second)
		v.want(t, i.token(keys().ecdsa).encode(t), "")
		v.want(t, i.token(keys().ed).encode(t), "invalid_key")
		if text := v.log.String(); strings.Count(text, "level=WARN") != 1 || strings.Count(text, "level=INFO") != 2 {
			t.Errorf("the log: %s", text)
		}
	})
	inBubble(t, "keys are found at their new URL", func(t *testing.T, i *issuer, v verifier) {
		v.want(t, i.token(keys().ed).encode(t), "")
		moved := func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case discoveryPath:
				fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, i.url, i.url+"/moved")
			case "/moved":
				fmt.Fprintf(w, `{"keys":[%s]}`, keyText(keys().ecdsa))
			default:
				w.WriteHeader(http.StatusGone)
			}
		}
		i.do(moved)
		time.Sleep(6 * time.Minute)
		v.want(t, i.token(keys().ecdsa).encode(t), "")
	})
	inBubble(t, "nobody waits longer than 10 seconds for an issuer that does not answer", func(t *testing.T, i *issuer, v verifier) {
		v.want(t, i.token(keys().ed).encode(t), "")
		time.Sleep(time.Minute)
		i.do(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		at := time.Now()
		if why := v.want(t, i.token(keys().ecdsa).encode(t), "issuer_unavailable"); time.Since(at) != 10*time.Second {
			t.Errorf("after %s: %s", time.Since(at), why)
		}
		v.want(t, i.token(keys().ecdsa).encode(t), "issuer_unavailable")
		if time.Since(at) != 10*time.Second {
			t.Errorf("the next one has waited too: %s", time.Since(at))
		}
	})
	inBubble(t, "nobody waits for unknown keys when the server stops", func(t *testing.T, i *issuer, v verifier) {
		v.want(t, i.token(keys().ed).encode(t), "")
		time.Sleep(time.Minute)
		i.do(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		var wg sync.WaitGroup
		wg.Go(func() { v.want(t, i.token(keys().ecdsa).encode(t), "issuer_unavailable") })
		synctest.Wait()
		at := time.Now()
		v.stop()
		wg.Wait()
		v.want(t, i.token(keys().ed).encode(t), "") // requests in progress end normally
		time.Sleep(time.Hour)
		v.want(t, i.token(renamed("late")).encode(t), "issuer_unavailable")
		if d := time.Since(at); d != time.Hour {
			t.Errorf("waited %s", d-time.Hour)
		}
	})
}

func TestIssuerDownAtTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(keys().ed)
		i.do(down)
		v := run(t, i)
		for range 100 {
			v.want(t, i.token(keys().ed).encode(t), "issuer_unavailable")
			v.want(t, i.token(keys().stranger).encode(t), "issuer_unavailable")
		}
		if n := i.requests(discoveryPath); n != 1 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(10 * time.Minute)
		if n := i.requests(discoveryPath); n < 120 || n > 122 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		if text := v.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "502") || !strings.Contains(text, i.url) {
			t.Errorf("the log: %s", text)
		}
		i.do(nil)
		time.Sleep(5 * time.Second)
		v.want(t, i.token(keys().ed).encode(t), "")
		if text := v.log.String(); strings.Count(text, "\n") != 2 {
			t.Errorf("the log: %s", text)
		}
		v.stop()
	})
}

func TestKeysWithoutIDs(t *testing.T) {
	t.Parallel()
	nameless := func(k key) key {
		k.id = ""
		return k
	}
	i := newIssuer(nameless(keys().ed), nameless(keys().ecdsa))
	v := run(t, i, func(*oidc.Options) {})
	v.want(t, i.token(nameless(keys().ed)).encode(t), "")
	v.want(t, i.token(nameless(keys().ecdsa)).encode(t), "")
	v.want(t, i.token(nameless(keys().stranger)).encode(t), "invalid_key")
	x := i.token(nameless(keys().ed))
	delete(x.header, "kid")
	v.want(t, x.encode(t), "")
}
