package webhook_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/storage/webhook"
)

func TestValidType(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"login": true, "user.created": true, "user.email.changed_2": true, "a": true, strings.Repeat("a", 128): true,
		"": false, "User": false, "user.": false, ".user": false, "user..x": false, "1user": false, "user.*": false,
		"user created": false, "user\x00": false, strings.Repeat("a", 129): false, "ü": false,
	} {
		if got := webhook.ValidType(text); got != want {
			t.Errorf("ValidType(%q) = %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]bool{
		"user.*": true, "user.email.*": true, "login": true, "*": false, "us*": false, "user.*.x": false, ".*": false,
		"user.*.*": false, "user.": false, "": false, strings.Repeat("a", 126) + ".*": true, strings.Repeat("a", 127) + ".*": false,
	} {
		if got := webhook.ValidPattern(text); got != want {
			t.Errorf("ValidPattern(%q) = %v, want %v", text, got, want)
		}
	}
}

// TestPatterns shows that looking a type up by its patterns finds a subscription exactly if it wants the type, and once.
func TestPatterns(t *testing.T) {
	t.Parallel()
	segment := rapid.SampledFrom([]string{"a", "b", "ab"})
	name := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(segment, 1, 3).Draw(t, "segments"), ".")
	})
	pattern := rapid.Custom(func(t *rapid.T) string {
		if rapid.Bool().Draw(t, "prefix") {
			return name.Draw(t, "name") + ".*"
		}
		return name.Draw(t, "name")
	})
	rapid.Check(t, func(t *rapid.T) {
		types := webhook.Types(rapid.SliceOfN(pattern, 0, 6).Draw(t, "types"))
		event := name.Draw(t, "event")
		found := 0
		for _, p := range types.Patterns() {
			if slices.Contains(webhook.TypePatterns(event), p) {
				found++
			}
		}
		want := 0
		if types.Want(event) {
			want = 1
		}
		if found != want {
			t.Fatalf("%v is found %d times for %q, want %d", types, found, event, want)
		}
	})
}

func TestTypesKeepTheirOrderAndLoseRepetitions(t *testing.T) {
	t.Parallel()
	got := webhook.Types{"b", "a", "b"}.Unique()
	if want := (webhook.Types{"b", "a"}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSecretRedactsItself(t *testing.T) {
	t.Parallel()
	secret := webhook.NewSecret()
	raw := strings.TrimPrefix(secret.Reveal(), webhook.SecretPrefix)
	if len(raw) != 44 {
		t.Fatalf("%d characters of base64 do not hold 32 bytes", len(raw))
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%p"} {
		for _, value := range []any{secret, &secret, struct{ S webhook.Secret }{secret}, struct{ s webhook.Secret }{secret}} {
			if text := fmt.Sprintf(verb, value); strings.Contains(text, raw) {
				t.Errorf("%s of %T shows the secret: %s", verb, value, text)
			}
		}
	}
}
