package access_test

import (
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
)

func TestForeign(t *testing.T) {
	t.Parallel()
	const token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"
	for raw, want := range map[string]bool{
		token: true, "IHsiYWxnIjoxfQ.e30.c2ln": true, // a space before the brace
		"e30.e30": false, "e30.e30.e30.e30": false, "WyJhIl0.e30.c2ln": false, "!!!.e30.c2ln": false, "": false,
	} {
		if got := access.LooksForeign(raw); got != want {
			t.Errorf("%s: %v", raw, got)
		}
	}
	c, ok := access.Foreign(token)
	if !ok || c.Reveal() != token {
		t.Errorf("%v, %v", c.Reveal(), ok)
	}
	for _, raw := range []string{alphabet + "-_.", strings.Repeat("a", 8<<10)} {
		if c, ok := access.Foreign(raw); !ok || c.Reveal() != raw {
			t.Errorf("%.40q was refused", raw)
		}
	}
	for _, raw := range []string{token + " ", token + "\n", token + "=", token + "é", strings.Repeat("a", 8<<10+1)} {
		if _, ok := access.Foreign(raw); ok {
			t.Errorf("%.40q was taken", raw)
		}
	}
}

func TestParseSession(t *testing.T) {
	t.Parallel()
	made := access.MintSession()
	if c, ok := access.ParseSession(made.Reveal()); !ok || c.Digest() != made.Digest() {
		t.Error("a session that was made is not read")
	}
	for _, raw := range []string{"", made.Reveal() + "A", made.Reveal()[1:], "!" + made.Reveal()[1:], made.Reveal()[:42] + "B"} {
		if _, ok := access.ParseSession(raw); ok {
			t.Errorf("%q was taken", raw)
		}
	}
}
