package access_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/storage/access"
)

// universe is small enough to look at every scope over it, and at every triple of them.
var universe = []string{"api_keys:read", "events:write", "orders:read", "orders:read:all"}

func everyScope() []access.Scope {
	var all []access.Scope
	for bits := range 1 << len(universe) {
		var keys []string
		for i, key := range universe {
			if bits>>i&1 == 1 {
				keys = append(keys, key)
			}
		}
		all = append(all, access.NewScope(keys...))
	}
	return all
}

func TestScopesOfASmallUniverse(t *testing.T) {
	t.Parallel()
	all := everyScope()
	var empty access.Scope

	t.Run("one holds all of another where nothing of that is missing", func(t *testing.T) {
		t.Parallel()
		for _, a := range all {
			for _, b := range all {
				if a.HasAll(b) != b.Minus(a).Empty() {
					t.Errorf("%q has all of %q: %t", a, b, a.HasAll(b))
				}
			}
		}
	})
	t.Run("an intersection holds exactly what both hold, in either order", func(t *testing.T) {
		t.Parallel()
		for _, a := range all {
			for _, b := range all {
				both := a.Intersect(b)
				if !both.Equal(b.Intersect(a)) {
					t.Fatalf("%q and %q do not commute", a, b)
				}
				for _, key := range universe {
					if both.Has(key) != (a.Has(key) && b.Has(key)) {
						t.Fatalf("%q ∩ %q = %q, as to %q", a, b, both, key)
					}
				}
			}
		}
	})
	t.Run("an intersection of three does not depend on the order", func(t *testing.T) {
		t.Parallel()
		for _, a := range all {
			for _, b := range all {
				for _, c := range all {
					if !a.Intersect(b).Intersect(c).Equal(a.Intersect(b.Intersect(c))) {
						t.Fatalf("%q, %q and %q do not associate", a, b, c)
					}
				}
			}
		}
	})
	t.Run("narrowing never adds, and narrowing again changes nothing", func(t *testing.T) {
		t.Parallel()
		for _, a := range all {
			for _, b := range all {
				narrowed := a.Intersect(b)
				if narrowed.Len() > min(a.Len(), b.Len()) || !narrowed.Intersect(b).Equal(narrowed) || !a.Intersect(a).Equal(a) {
					t.Fatalf("%q narrowed by %q is %q", a, b, narrowed)
				}
			}
		}
	})
	t.Run("what was granted and what was not make up what was requested", func(t *testing.T) {
		t.Parallel()
		for _, requested := range all {
			for _, held := range all {
				granted, rest := requested.Intersect(held), requested.Minus(held)
				if !access.NewScope(append(granted.Keys(), rest.Keys()...)...).Equal(requested) || !granted.Intersect(rest).Empty() {
					t.Fatalf("%q of %q: granted %q, not granted %q", requested, held, granted, rest)
				}
			}
		}
	})
	t.Run("the empty scope grants nothing and takes everything away", func(t *testing.T) {
		t.Parallel()
		for _, a := range all {
			if !a.Intersect(empty).Empty() || !empty.Intersect(a).Empty() || !a.Minus(empty).Equal(a) {
				t.Fatalf("the empty scope beside %q", a)
			}
		}
		for _, key := range append(universe, "") {
			if empty.Has(key) {
				t.Fatalf("the empty scope holds %q", key)
			}
		}
	})
	t.Run("a scope is read back from its string and from what is stored", func(t *testing.T) {
		t.Parallel()
		for _, a := range all {
			parsed, malformed := access.ParseScope(a.String())
			if !parsed.Equal(a) || malformed != nil {
				t.Fatalf("%q is read back as %q, malformed %q", a, parsed, malformed)
			}
			stored, err := a.Value()
			if err != nil {
				t.Fatal(err)
			}
			var scanned access.Scope
			if err := scanned.Scan(stored); err != nil || !scanned.Equal(a) {
				t.Fatalf("%q is scanned as %q: %v", a, scanned, err)
			}
		}
	})
}

func TestScopesOfAnyPermissions(t *testing.T) {
	t.Parallel()
	word := rapid.StringMatching(`[a-z][a-z0-9_]{0,5}`)
	key := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(word, 2, 4).Draw(t, "words"), ":")
	})
	scope := rapid.Custom(func(t *rapid.T) access.Scope {
		return access.NewScope(rapid.SliceOfN(key, 0, 20).Draw(t, "keys")...)
	})

	t.Run("narrowing never adds", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			a, b := scope.Draw(t, "a"), scope.Draw(t, "b")
			for _, key := range a.Intersect(b).Keys() {
				if !a.Has(key) || !b.Has(key) {
					t.Fatalf("%q is in the intersection of %q and %q", key, a, b)
				}
			}
		})
	})
	t.Run("order, repetition and extra spaces do not matter", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			keys := rapid.SliceOf(key).Draw(t, "keys")
			shuffled := rapid.Permutation(append(slices.Clone(keys), keys...)).Draw(t, "shuffled")
			space := strings.Repeat(" ", rapid.IntRange(1, 3).Draw(t, "spaces"))
			parsed, malformed := access.ParseScope(space + strings.Join(shuffled, space) + space)
			if !parsed.Equal(access.NewScope(keys...)) || malformed != nil {
				t.Fatalf("%q is read as %q, malformed %q", shuffled, parsed, malformed)
			}
		})
	})
}

func TestParseScope(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text, scope string
		malformed         []string
	}{
		{"nothing is the empty scope", "", "", nil},
		{"spaces are the empty scope", "   ", "", nil},
		{"keys are sorted and repetitions dropped", "b:c a:b b:c", "a:b b:c", nil},
		{"what is no permission key is told in the order written", "z a:b A:b *", "a:b", []string{"z", "A:b", "*"}},
		{"only the space delimits", "a:b\tb:c", "", []string{"a:b\tb:c"}},
		{"a comma does not delimit", "a:b,b:c", "", []string{"a:b,b:c"}},
		{"NUL and invalid UTF-8 are malformed", "a:b\x00 \xff", "", []string{"a:b\x00", "\xff"}},
		{"a key longer than the limit is malformed", "a:" + strings.Repeat("b", access.MaxPermissionKey), "",
			[]string{"a:" + strings.Repeat("b", access.MaxPermissionKey)}},
		{"a key of the limit's length is good", "a:" + strings.Repeat("b", access.MaxPermissionKey-2),
			"a:" + strings.Repeat("b", access.MaxPermissionKey-2), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			scope, malformed := access.ParseScope(test.text)
			if scope.String() != test.scope {
				t.Errorf("scope is %q, want %q", scope, test.scope)
			}
			if diff := cmp.Diff(test.malformed, malformed); diff != "" {
				t.Errorf("malformed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScopeIsImmutable(t *testing.T) {
	t.Parallel()
	t.Run("neither the keys given nor the keys returned reach into it", func(t *testing.T) {
		t.Parallel()
		given := []string{"b:c", "a:b"}
		scope := access.NewScope(given...)
		given[0] = "x:y"
		returned := scope.Keys()
		returned[0] = "x:y"
		if _ = append(returned, "z:z"); scope.String() != "a:b b:c" {
			t.Errorf("scope is %q", scope)
		}
	})
	t.Run("the keys of the empty scope are an empty list, not nil", func(t *testing.T) {
		t.Parallel()
		if keys := (access.Scope{}).Keys(); keys == nil || len(keys) != 0 {
			t.Errorf("keys are %#v", keys)
		}
	})
}

func TestScanRefusesWhatIsNoScope(t *testing.T) {
	t.Parallel()
	for _, src := range []any{nil, int64(1), []byte("a:b"), "a:b *", "a:b\nc:d"} {
		t.Run(fmt.Sprintf("%T %v leaves the scope as it was", src, src), func(t *testing.T) {
			t.Parallel()
			scope := access.NewScope("a:b")
			if err := scope.Scan(src); err == nil || scope.String() != "a:b" {
				t.Errorf("error %v, scope %q", err, scope)
			}
		})
	}
}

func FuzzParseScope(f *testing.F) {
	for _, seed := range []string{"", " ", "a:b", "a:b  c:d a:b", "a:b,c:d", "A:b", "a:b\x00", "\xff", "a::b", ":a", "a:", "platform:act_as *"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		scope, malformed := access.ParseScope(text)
		for _, key := range scope.Keys() {
			if !access.ValidPermissionKey(key) || !slices.Contains(strings.Split(text, " "), key) {
				t.Errorf("%q grants %q", text, key)
			}
		}
		for _, token := range malformed {
			if access.ValidPermissionKey(token) || token == "" {
				t.Errorf("%q is malformed in %q", token, text)
			}
		}
		again, rest := access.ParseScope(scope.String())
		if !again.Equal(scope) || rest != nil {
			t.Errorf("%q is read as %q and then as %q", text, scope, again)
		}
	})
}
