package access_test

import (
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
)

func TestIDType(t *testing.T) {
	t.Parallel()
	const suffix = "01h455vb4pex5vsknk084sn02q"
	t.Run("an id names its type", func(t *testing.T) {
		t.Parallel()
		for _, id := range []string{"sub_" + suffix, "xyz_" + suffix, "aaz_" + suffix, "sub_7zzzzzzzzzzzzzzzzzzzzzzzzz"} {
			if found, ok := access.IDTypeOf(id); !ok || string(found) != id[:3] || !found.Valid(id) {
				t.Errorf("%s is of type %q: %v", id, found, ok)
			}
		}
		if access.KeyID.Valid("sub_" + suffix) {
			t.Error("the id of a subscription passes for the id of a key")
		}
	})
	t.Run("anything else is no id", func(t *testing.T) {
		t.Parallel()
		for _, s := range []string{
			"", "_", "sub", "sub_", suffix, "sub-" + suffix, "Sub_" + suffix, "subs_" + suffix, "su_" + suffix, "sub_" + suffix + "0",
			"sub_" + suffix[1:], "sub_8" + suffix[1:], "sub_" + strings.ToUpper(suffix), "sub_" + suffix[:25] + "i",
			"sub_" + suffix[:25] + "\n", "sub_" + suffix + "\n", "sub_" + strings.Repeat("é", 13), "s_b_" + suffix,
		} {
			if found, ok := access.IDTypeOf(s); ok || access.SubscriptionID.Valid(s) {
				t.Errorf("%q is an id of type %q", s, found)
			}
		}
	})
}
