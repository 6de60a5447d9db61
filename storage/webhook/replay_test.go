package webhook_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/storage/webhook"
)

// TestCommonPatterns shows that what two lists have in common finds a type exactly if both want it, and once.
func TestCommonPatterns(t *testing.T) {
	t.Parallel()
	name := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab"}), 1, 3).Draw(t, "segments"), ".")
	})
	pattern := rapid.Custom(func(t *rapid.T) string {
		return name.Draw(t, "name") + rapid.SampledFrom([]string{"", ".*"}).Draw(t, "end")
	})
	rapid.Check(t, func(t *rapid.T) {
		one := webhook.Types(rapid.SliceOfN(pattern, 0, 6).Draw(t, "one"))
		other := webhook.Types(rapid.SliceOfN(pattern, 0, 6).Draw(t, "other"))
		event := name.Draw(t, "event")
		found, want := 0, 0
		for _, p := range one.Common(other) {
			if slices.Contains(webhook.TypePatterns(event), p) {
				found++
			}
		}
		if one.Want(event) && other.Want(event) {
			want = 1
		}
		if found != want {
			t.Fatalf("%v and %v find %q %d times, want %d: %v", one, other, event, found, want, one.Common(other))
		}
	})
}
