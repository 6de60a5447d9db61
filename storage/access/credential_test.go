package access_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
)

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func TestMint(t *testing.T) {
	t.Parallel()
	t.Run("a key has the published form", func(t *testing.T) {
		t.Parallel()
		form := regexp.MustCompile(`^svc_[0-9A-Za-z]{36}$`)
		for range 1000 {
			if raw := access.Mint("svc").Reveal(); !form.MatchString(raw) || len(raw) != 40 {
				t.Fatalf("minted %q", raw)
			}
		}
	})
	t.Run("the last six characters are the CRC-32 of all before them in base 62", func(t *testing.T) {
		t.Parallel()
		raw := access.Mint("svc").Reveal()
		var sum uint64
		for _, digit := range raw[34:] {
			sum = sum*62 + uint64(strings.IndexRune(alphabet, digit))
		}
		if want := crc32.ChecksumIEEE([]byte(raw[:34])); sum != uint64(want) {
			t.Errorf("checksum of %q is %d, want %d", raw, sum, want)
		}
	})
	t.Run("no two are the same", func(t *testing.T) {
		t.Parallel()
		seen := map[string]bool{}
		for range 10_000 {
			raw := access.Mint("svc").Reveal()
			if seen[raw] {
				t.Fatalf("minted %q twice", raw)
			}
			seen[raw] = true
		}
	})
	t.Run("no character of the random part is favoured", func(t *testing.T) {
		t.Parallel()
		var count [256]int
		const keys = 20_000
		for range keys {
			for _, c := range []byte(access.Mint("svc").Reveal()[4:34]) {
				count[c]++
			}
		}
		// 9677 of each are expected, with a standard deviation of 98; a plain remainder of a byte by 62 would give eight of
		// them a quarter more.
		for _, c := range []byte(alphabet) {
			if want := keys * 30 / 62; count[c] < want*93/100 || count[c] > want*107/100 {
				t.Errorf("%q came up %d times, where %d are expected", c, count[c], want)
			}
		}
	})
}

func TestParse(t *testing.T) {
	t.Parallel()
	known := access.Mint("svc").Reveal()
	t.Run("a minted credential is read back, whatever its prefix", func(t *testing.T) {
		t.Parallel()
		for _, prefix := range []string{"svc", access.TokenPrefix, "a", "abcdefghijklmnop", "k2"} {
			minted := access.Mint(prefix)
			parsed, ok := access.Parse(minted.Reveal())
			if !ok || parsed.Reveal() != minted.Reveal() || parsed.Prefix() != prefix {
				t.Errorf("%q is read as %q of prefix %q: %v", minted.Reveal(), parsed.Reveal(), parsed.Prefix(), ok)
			}
		}
	})
	t.Run("the checksum refuses every change of one character", func(t *testing.T) {
		t.Parallel()
		raw := access.Mint("svc").Reveal()
		for i := range len(raw) {
			for c := range 256 {
				changed := []byte(raw)
				if changed[i] = byte(c); string(changed) == raw {
					continue
				}
				if _, ok := access.Parse(string(changed)); ok {
					t.Fatalf("%q passes for %q", changed, raw)
				}
			}
		}
	})
	t.Run("the checksum refuses every swap of two neighbours, every loss and every doubling of a character", func(t *testing.T) {
		t.Parallel()
		raw := access.Mint("svc").Reveal()
		for i := range len(raw) {
			for _, changed := range []string{raw[:i] + raw[i+1:], raw[:i] + raw[i:i+1] + raw[i:]} {
				if _, ok := access.Parse(changed); ok {
					t.Fatalf("%q passes for %q", changed, raw)
				}
			}
			if i == 0 || raw[i] == raw[i-1] {
				continue
			}
			if _, ok := access.Parse(raw[:i-1] + raw[i:i+1] + raw[i-1:i] + raw[i+1:]); ok {
				t.Fatalf("%q passes with characters %d and %d swapped", raw, i-1, i)
			}
		}
	})
	for _, raw := range []string{
		"", "svc", "svc_", "_", known[4:], known + " ", " " + known, known + "\n", "SVC" + known[3:], "ApiKey " + known,
		known + known, "svc-" + known[4:], strings.Repeat("a", 10_000), "svc_" + strings.Repeat("é", 18), "svc_" + strings.Repeat("\x00", 36),
		"2vc" + known[3:], "abcdefghijklmnopq" + known[3:],
	} {
		t.Run(fmt.Sprintf("%.12q of %d bytes was never minted", raw, len(raw)), func(t *testing.T) {
			t.Parallel()
			if c, ok := access.Parse(raw); ok || c != (access.Credential{}) {
				t.Errorf("%q is read as %q", raw, c.Reveal())
			}
		})
	}
}

func TestTheFormOfACredential(t *testing.T) {
	t.Parallel()
	raw := access.Mint("svc").Reveal()
	t.Run("is known from its prefix and its length, whatever its checksum", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{raw, raw[:39] + "z", "svc_" + strings.Repeat("0", 36)} {
			if prefix, ok := access.LooksMinted(text); !ok || prefix != "svc" {
				t.Errorf("%q has the prefix %q: %v", text, prefix, ok)
			}
		}
		for _, text := range []string{"", raw + "0", raw[:39], raw[4:], "_" + raw[4:], "Svc" + raw[3:], "svc-" + raw[4:]} {
			if _, ok := access.LooksMinted(text); ok {
				t.Errorf("%q passes", text)
			}
		}
	})
	t.Run("begins with a lower-case letter and up to 15 more letters and digits", func(t *testing.T) {
		t.Parallel()
		for _, prefix := range []string{"a", "svc", access.DefaultKeyPrefix, access.TokenPrefix, "a2345678901234bc"} {
			if !access.ValidKeyPrefix(prefix) {
				t.Errorf("%q is refused", prefix)
			}
		}
		for _, prefix := range []string{"", "2a", "A", "a_b", "a-b", "a ", "é", strings.Repeat("a", 17)} {
			if access.ValidKeyPrefix(prefix) {
				t.Errorf("%q passes", prefix)
			}
		}
	})
	t.Run("is cut to its display wherever it stands in a text", func(t *testing.T) {
		t.Parallel()
		other := strings.Repeat("a", 40)
		text := "got " + raw + ", and \"" + raw + "\", and " + other + "."
		want := "got " + raw[:10] + "…, and \"" + raw[:10] + "…\", and " + other + "."
		if got := access.ShortenMinted(text); got != want {
			t.Errorf("got %s", got)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "svc_", access.Mint("svc").Reveal(), access.Mint("kat").Reveal() + "x", "svc_" + strings.Repeat("0", 36), "\xff_"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		c, ok := access.Parse(raw)
		if !ok {
			if c != (access.Credential{}) {
				t.Errorf("%q is refused and returned", raw)
			}
			return
		}
		if c.Reveal() != raw || c.Digest() != sha256.Sum256([]byte(raw)) || len(raw) > 64 {
			t.Errorf("%q is read as %q", raw, c.Reveal())
		}
		if shown := c.Display(); len(shown) > len(raw)-26 || !strings.HasPrefix(raw, strings.TrimSuffix(shown, "…")) {
			t.Errorf("%q is shown as %q", raw, shown)
		}
	})
}

func TestOpaque(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, raw string
		ok        bool
	}{
		{"20 visible characters are enough", strings.Repeat("x", 20), true},
		{"200 are the most", strings.Repeat("~", 200), true},
		{"19 are too few", strings.Repeat("x", 19), false},
		{"201 are too many", strings.Repeat("x", 201), false},
		{"a space is not visible", strings.Repeat("x", 20) + " ", false},
		{"a line break is not visible", strings.Repeat("x", 20) + "\n", false},
		{"only ASCII", strings.Repeat("é", 20), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if c, ok := access.Opaque(test.raw); ok != test.ok || ok && c.Reveal() != test.raw {
				t.Errorf("ok is %v, raw %q", ok, c.Reveal())
			}
		})
	}
}

func TestDisplay(t *testing.T) {
	t.Parallel()
	t.Run("a minted credential shows its prefix, six characters and an ellipsis", func(t *testing.T) {
		t.Parallel()
		c := access.Mint("svc")
		if want := c.Reveal()[:10] + "…"; c.Display() != want {
			t.Errorf("shown as %q, want %q", c.Display(), want)
		}
	})
	t.Run("a display is read with and without its ellipsis, and nothing else", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]bool{
			"svc_09AZaz": true, "svc_09AZaz…": true, "svc_09AZa": false, "svc_09AZazb": false, "svc_09AZa:": false, "svc_09AZa[": false, "svc_09AZa{": false,
			"svc_09AZa/": false, "svc_09AZa@": false, "svc_09AZa`": false, "Svc_09AZaz": false, "_09AZaz": false, "svc": false, "": false,
		} {
			if shown, ok := access.ParseDisplay(text); ok != want || ok && shown != "svc_09AZaz…" {
				t.Errorf("%q is read as %q: %v", text, shown, ok)
			}
		}
	})
	t.Run("an opaque token shows nothing, even if it looks like a prefix", func(t *testing.T) {
		t.Parallel()
		c, _ := access.Opaque("svc_0123456789abcdefghij")
		if c.Display() != "…" {
			t.Errorf("shown as %q", c.Display())
		}
	})
}

func TestCredentialRedactsItself(t *testing.T) {
	t.Parallel()
	c := access.Mint("svc")
	secret := c.Reveal()[10:]
	held := struct {
		c    access.Credential
		C    access.Credential
		P    *access.Credential
		List []access.Credential
		Map  map[string]access.Credential
		Any  any
		Key  access.NewKey
	}{c, c, &c, []access.Credential{c}, map[string]access.Credential{"k": c}, c, access.NewKey{Credential: c}}

	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%10.3f"} {
		t.Run("under "+verb, func(t *testing.T) {
			t.Parallel()
			for _, v := range []any{c, &c, held, &held, fmt.Errorf("wrapped: %v", c)} {
				if text := fmt.Sprintf(verb, v); leaks(text, secret) {
					t.Errorf("%T is printed as %s", v, text)
				}
			}
		})
	}
	t.Run("in the JSON and the text logs of slog", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		for _, handler := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
			log := slog.New(handler)
			log.Info("said", "c", c, "p", &c, "held", held)
			log.With("c", c).WithGroup("g").Info("said", slog.Any("c", c), slog.Group("h", "c", c))
		}
		if text := out.String(); leaks(text, secret) || !strings.Contains(text, "[redacted]") {
			t.Errorf("logged %s", text)
		}
	})
	t.Run("in JSON, as a value and as the key of a map", func(t *testing.T) {
		t.Parallel()
		for _, v := range []any{c, &c, held, map[access.Credential]int{c: 1}} {
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if leaks(string(text), secret) || !bytes.Contains(text, []byte("[redacted]")) {
				t.Errorf("%T is marshalled as %s", v, text)
			}
		}
	})
}

// leaks reports whether text holds the secret plainly or in hexadecimal.
func leaks(text, secret string) bool {
	hidden := fmt.Sprintf("%x", secret)
	return strings.Contains(text, secret) || strings.Contains(strings.ToLower(text), hidden)
}

// TestPattern tries the pattern on new credentials, and on what is almost one.
func TestPattern(t *testing.T) {
	t.Parallel()
	pattern := regexp.MustCompile("^" + access.Pattern("svc", access.TokenPrefix) + "$")
	for range 1000 {
		for _, prefix := range []string{"svc", access.TokenPrefix} {
			if raw := access.Mint(prefix).Reveal(); !pattern.MatchString(raw) {
				t.Fatalf("no match of %q", raw)
			}
		}
	}
	key := access.Mint("svc").Reveal()
	for name, raw := range map[string]string{
		"a character less": key[:39], "a character more": key + "0", "another prefix": access.Mint("abc").Reveal(), "another case": "SVC" + key[3:],
		"a sign-in link": access.Mint(access.LinkPrefix).Reveal(), "a hyphen": key[:20] + "-" + key[21:], "no underscore": "svc" + key[4:] + "0",
		"a session": access.MintSession().Reveal(), "an id": "key_01h455vb4pex5vsknk084sn02q", "what is shown": access.Mint("svc").Display(),
	} {
		if pattern.MatchString(raw) {
			t.Errorf("%s: %q matches", name, raw)
		}
	}
}
