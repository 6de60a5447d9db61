package storagetest

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"
)

// Frozen reads a golden file, which must have that SHA-256: the file of a released schema is never written again.
func Frozen(tb testing.TB, name, digest string) []byte {
	tb.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		tb.Fatalf("%v; write it with -update", err)
	}
	sum := sha256.Sum256(text)
	if found := hex.EncodeToString(sum[:]); found != digest {
		tb.Errorf("the SHA-256 of %s is %s, and the list has %q. If a version with this schema was released, take the file back from git, "+
			"because it never changes. Otherwise put the digest into the list.", name, found, digest)
	}
	return text
}

// StillThere returns what now has of then. It leaves out what later versions have added to the records of then.
func StillThere(then, now any) any {
	switch then := then.(type) {
	case map[string]any:
		now, _ := now.(map[string]any)
		kept := map[string]any{}
		for name, was := range then {
			if is, found := now[name]; found {
				kept[name] = StillThere(was, is)
			}
		}
		return kept
	case []any:
		now, _ := now.([]any)
		kept := make([]any, 0, len(now))
		for i, is := range now {
			if i < len(then) {
				is = StillThere(then[i], is)
			}
			kept = append(kept, is)
		}
		return kept
	}
	return now
}
