package seal_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/seal"
)

const owner = "sub_01jd0000000000000000000001"

// kept was sealed once with the known key for owner: what was sealed must open for ever.
const (
	kept       = "v1.1e6a3b2a.vubA633WSDw4ZZ5dsIdVnrBswDUe4eqzssq8UmSpjOzzDu1ZMxnqDLCDc9ve5OOT4isjhn_AU8RMpa_2mVvUQnG1"
	keptSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// known is the key that kept was sealed with.
func known(tb testing.TB) seal.Key {
	tb.Helper()
	k, err := seal.ParseKey("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, plaintext := range []string{"", "x", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "\x00\xff.\n", strings.Repeat("long", 10_000)} {
		for _, associated := range []string{"", owner, "with.dots\x00and more"} {
			r := seal.NewRing(seal.NewKey())
			got, err := r.Open(r.Seal([]byte(plaintext), associated), associated)
			if err != nil || string(got) != plaintext {
				t.Errorf("%.20q for %q: got %.20q, %v", plaintext, associated, got, err)
			}
		}
	}
}

func TestSealed(t *testing.T) {
	t.Parallel()

	t.Run("differs each time and shows nothing of the plaintext", func(t *testing.T) {
		t.Parallel()
		r := seal.NewRing(seal.NewKey())
		a, b := r.Seal([]byte("whsec_secret"), owner), r.Seal([]byte("whsec_secret"), owner)
		if bytes.Equal(a, b) {
			t.Error("two seals are the same")
		}
		if bytes.Contains(a, []byte("whsec_")) {
			t.Errorf("the plaintext shows: %s", a)
		}
	})

	t.Run("of an earlier version of the program still opens", func(t *testing.T) {
		t.Parallel()
		got, err := seal.NewRing(known(t)).Open([]byte(kept), owner)
		if err != nil || string(got) != keptSecret {
			t.Errorf("got %q, %v", got, err)
		}
	})

	t.Run("names its key", func(t *testing.T) {
		t.Parallel()
		k := seal.NewKey()
		r := seal.NewRing(k)
		id, err := seal.KeyID(r.Seal([]byte("x"), owner))
		if err != nil || id != k.ID() || id != r.ActiveID() || len(id) != 8 {
			t.Errorf("id %q, key's %q, ring's %q, error %v", id, k.ID(), r.ActiveID(), err)
		}
	})

	t.Run("does not open for another owner", func(t *testing.T) {
		t.Parallel()
		r := seal.NewRing(seal.NewKey())
		first, second := r.Seal([]byte("one"), "sub_1"), r.Seal([]byte("two"), "sub_2")
		for _, c := range []struct {
			sealed     []byte
			associated string
		}{{first, "sub_2"}, {second, "sub_1"}, {first, ""}, {first, "sub_1 "}, {first, "SUB_1"}} {
			if got, err := r.Open(c.sealed, c.associated); !errors.Is(err, seal.ErrDamaged) {
				t.Errorf("for %q: %q, %v", c.associated, got, err)
			}
		}
	})
}

func TestRing(t *testing.T) {
	t.Parallel()
	older, active := seal.NewKey(), seal.NewKey()
	before := seal.NewRing(older).Seal([]byte("secret"), owner)
	rotated := seal.NewRing(active, older)

	t.Run("opens what an older key has sealed", func(t *testing.T) {
		t.Parallel()
		if got, err := rotated.Open(before, owner); err != nil || string(got) != "secret" {
			t.Errorf("got %q, %v", got, err)
		}
	})

	t.Run("seals with the first key alone", func(t *testing.T) {
		t.Parallel()
		sealed := rotated.Seal([]byte("secret"), owner)
		if id, _ := seal.KeyID(sealed); id != active.ID() || rotated.ActiveID() != active.ID() {
			t.Errorf("sealed with %s, active %s, want %s", id, rotated.ActiveID(), active.ID())
		}
		if got, err := seal.NewRing(active).Open(sealed, owner); err != nil || string(got) != "secret" {
			t.Errorf("got %q, %v", got, err)
		}
	})

	t.Run("names the key that it lacks", func(t *testing.T) {
		t.Parallel()
		_, err := seal.NewRing(active).Open(before, owner)
		if !errors.Is(err, seal.ErrUnknownKey) || !strings.HasSuffix(err.Error(), ": "+older.ID()) {
			t.Errorf("got %v, want an error that names %s", err, older.ID())
		}
	})

	t.Run("is not fooled by a text relabelled with the id of a key it has", func(t *testing.T) {
		t.Parallel()
		relabelled := bytes.Replace(before, []byte(older.ID()), []byte(active.ID()), 1)
		if got, err := rotated.Open(relabelled, owner); !errors.Is(err, seal.ErrDamaged) {
			t.Errorf("got %q, %v", got, err)
		}
	})

	t.Run("of the zero key is a mistake of the program", func(t *testing.T) {
		t.Parallel()
		for name, make := range map[string]func(){
			"active": func() { seal.NewRing(seal.Key{}) },
			"older":  func() { seal.NewRing(active, seal.Key{}) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", name)
					}
				}()
				make()
			}()
		}
	})
}

func TestDamage(t *testing.T) {
	t.Parallel()
	r := seal.NewRing(known(t))
	sealed := r.Seal([]byte("whsec_secret"), owner)
	refused := func(t *testing.T, what string, text []byte) {
		t.Helper()
		got, err := r.Open(text, owner)
		if got != nil || !errors.Is(err, seal.ErrDamaged) && !errors.Is(err, seal.ErrVersion) && !errors.Is(err, seal.ErrUnknownKey) {
			t.Errorf("%s: got %q, %v", what, got, err)
		}
	}

	t.Run("by truncation at any length is refused", func(t *testing.T) {
		t.Parallel()
		for n := range sealed {
			refused(t, fmt.Sprintf("the first %d bytes", n), sealed[:n])
			refused(t, fmt.Sprintf("without the first %d bytes", n+1), sealed[n+1:])
		}
	})

	t.Run("by any flipped bit is refused", func(t *testing.T) {
		t.Parallel()
		for bit := range len(sealed) * 8 {
			flipped := bytes.Clone(sealed)
			flipped[bit/8] ^= 1 << (bit % 8)
			refused(t, fmt.Sprintf("bit %d", bit), flipped)
		}
	})

	t.Run("by any inserted byte is refused", func(t *testing.T) {
		t.Parallel()
		for at := range len(sealed) + 1 {
			for _, b := range []byte("\x00\n\r =.A_\xff") {
				refused(t, fmt.Sprintf("%q before byte %d", b, at), slices.Insert(bytes.Clone(sealed), at, b))
			}
		}
	})

	t.Run("has a kind", func(t *testing.T) {
		t.Parallel()
		id, body := r.ActiveID(), string(sealed[len("v1.")+8+1:])
		for _, c := range []struct {
			name, text string
			want       error
		}{
			{"empty", "", seal.ErrDamaged},
			{"not sealed at all", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", seal.ErrDamaged},
			{"a later version", "v2." + id + "." + body, seal.ErrVersion},
			{"a much later version", "v10.anything", seal.ErrVersion},
			{"a version that is no number", "vX." + id + "." + body, seal.ErrDamaged},
			{"no key id", "v1.." + body, seal.ErrDamaged},
			{"an upper-case key id", "v1." + strings.ToUpper("abcdef12") + "." + body, seal.ErrDamaged},
			{"no ciphertext", "v1." + id + ".", seal.ErrDamaged},
			{"a ciphertext shorter than a nonce and a tag", "v1." + id + ".AAAA", seal.ErrDamaged},
			{"padded base64", "v1." + id + "." + body + "=", seal.ErrDamaged},
		} {
			if _, err := r.Open([]byte(c.text), owner); !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", c.name, err, c.want)
			}
		}
	})
}

func TestWrongKey(t *testing.T) {
	t.Parallel()
	sealed := seal.NewRing(seal.NewKey()).Seal([]byte("secret"), owner)
	if _, err := seal.NewRing(seal.NewKey()).Open(sealed, owner); errors.Is(err, seal.ErrDamaged) || err == nil {
		t.Errorf("got %v, want an unknown key", err)
	}
	for _, text := range []string{"", "v1.", "v2.x.y", "v1.zzzzzzzz.AA"} {
		if id, err := seal.KeyID([]byte(text)); err == nil {
			t.Errorf("KeyID of %q is %q", text, id)
		}
	}
}

// Open never panics, and opens only texts that were sealed.
func FuzzOpen(f *testing.F) {
	r := seal.NewRing(known(f))
	f.Add([]byte(kept), owner)
	f.Add([]byte("v1."+r.ActiveID()+"."), "")
	f.Add([]byte("v2.x"), owner)
	f.Add([]byte{}, "")
	f.Fuzz(func(t *testing.T, text []byte, associated string) {
		if _, err := r.Open(text, associated); err == nil && !(string(text) == kept && associated == owner) {
			t.Errorf("%q opens for %q", text, associated)
		}
		seal.KeyID(text)
	})
}

func BenchmarkOpen(b *testing.B) {
	r := seal.NewRing(seal.NewKey())
	sealed := r.Seal([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), owner)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Open(sealed, owner); err != nil {
			b.Fatal(err)
		}
	}
}
