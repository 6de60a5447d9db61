package seal_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/seal"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	raw := []byte("\xfb\xff\xfe0123456789abcdef0123456789abc") // with + and / in base64
	want := base64.StdEncoding.EncodeToString(raw)

	for name, text := range map[string]string{
		"standard base64":             base64.StdEncoding.EncodeToString(raw),
		"standard base64, not padded": base64.RawStdEncoding.EncodeToString(raw),
		"base64url":                   base64.URLEncoding.EncodeToString(raw),
		"base64url, not padded":       base64.RawURLEncoding.EncodeToString(raw),
		"hex":                         hex.EncodeToString(raw),
		"upper-case hex":              strings.ToUpper(hex.EncodeToString(raw)),
		"a line of a file":            want + "\n",
		"a line of a file from DOS":   "\t" + want + "\r\n",
	} {
		t.Run("takes "+name, func(t *testing.T) {
			t.Parallel()
			if k, err := seal.ParseKey(text); err != nil || k.Reveal() != want {
				t.Errorf("got %v", err)
			}
		})
	}

	for name, text := range map[string]string{
		"nothing":                 "",
		"a passphrase":            "correct horse battery staple",
		"32 characters of text":   "0123456789abcdef0123456789abcde!",
		"31 bytes":                base64.StdEncoding.EncodeToString(raw[1:]),
		"33 bytes":                base64.StdEncoding.EncodeToString(append(raw, 0)),
		"63 hex digits":           hex.EncodeToString(raw)[1:],
		"32 zero bytes":           strings.Repeat("0", 64),
		"a mix of both alphabets": strings.Replace(want, "/", "_", 1),
		"a break in the middle":   want[:20] + "\n" + want[20:],
		"bits beyond the last":    strings.TrimRight(want, "=")[:42] + "B",
	} {
		t.Run("refuses "+name+" and says how to make a key", func(t *testing.T) {
			t.Parallel()
			k, err := seal.ParseKey(text)
			if !errors.Is(err, seal.ErrKey) || !k.IsZero() {
				t.Fatalf("got %v", err)
			}
			if !strings.Contains(err.Error(), "openssl rand -base64 32") || text != "" && strings.Contains(err.Error(), text) {
				t.Errorf("the error says: %v", err)
			}
		})
	}
}

func TestKey(t *testing.T) {
	t.Parallel()

	t.Run("is new each time and read back from what it reveals", func(t *testing.T) {
		t.Parallel()
		a, b := seal.NewKey(), seal.NewKey()
		if a.Reveal() == b.Reveal() || a.ID() == b.ID() || a.IsZero() {
			t.Error("two new keys are the same, or none")
		}
		if again, err := seal.ParseKey(a.Reveal()); err != nil || again.Reveal() != a.Reveal() || again.ID() != a.ID() {
			t.Errorf("read back: %v", err)
		}
	})

	t.Run("redacts itself", func(t *testing.T) {
		t.Parallel()
		k := known(t)
		type holder struct {
			K seal.Key
			P *seal.Key
		}
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%t", "%p"} {
			fmt.Fprintf(&out, verb+" ", k)
			fmt.Fprintf(&out, verb+" ", &k)
			fmt.Fprintf(&out, verb+" ", holder{K: k})
			fmt.Fprintf(&out, verb+"\n", struct{ hidden seal.Key }{k})
		}
		fmt.Fprintln(&out, k.String(), k.GoString())
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "k", k, "h", holder{k, &k})
		slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "k", k, "h", holder{k, &k})
		if err := json.NewEncoder(&out).Encode(holder{k, &k}); err != nil {
			t.Fatal(err)
		}
		raw, _ := base64.StdEncoding.DecodeString(k.Reveal())
		for name, leak := range map[string]string{
			"base64": k.Reveal(), "hex": hex.EncodeToString(raw), "upper-case hex": strings.ToUpper(hex.EncodeToString(raw)),
			"bytes": "4 5 6 7 8", "Go bytes": "0x4, 0x5, 0x6", "text": string(raw[4:12]), "octal": "10 11 12 13",
		} {
			if strings.Contains(out.String(), leak) {
				t.Errorf("%s of the key is in:\n%s", name, out.String())
			}
		}
		if !strings.Contains(out.String(), "[redacted]") {
			t.Error("nothing says that something was redacted")
		}
	})
}

func TestTheZeroKeyHasNoID(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("the zero key has an id")
		}
	}()
	_ = seal.Key{}.ID()
}
