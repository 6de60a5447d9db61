package filter_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/storage/filter"
)

// condition returns a condition that must be allowed.
func condition(t testing.TB, path, op, value string) filter.Condition {
	t.Helper()
	c, problem := filter.New(path, filter.Op(op), []byte(value))
	if problem != nil {
		t.Fatalf("%s %s %s: %+v", path, op, value, problem)
	}
	return c
}

func TestPasses(t *testing.T) {
	t.Parallel()
	const data = `{"name":"Zoë","amount":100,"cheap":1.50,"big":12345678901234567890.1,"tiny":-1e-400,"part":0.05,"huge":1e99999999999999999999,"paid":true,
		"gone":null,"empty":"","lines":[{"sku":"a-1"},{"sku":"b-2"}],"deep":{"er":{"0":"zero"}},"a.b":1}`
	for words, want := range map[string]bool{
		`name eq "Zoë"`: true, `name eq "Zo\u00eb"`: true, `name eq "zoë"`: false, `name ne "zoë"`: true, `name ne "Zoë"`: false,
		`amount eq 100.0`: true, `amount eq 1e2`: true, `amount eq "100"`: false, `amount ne "100"`: true, `amount gt 99.999`: true, `amount lt 100`: false,
		`amount lte 100`: true, `amount gte 100`: true, `amount gt 100`: false, `amount lt "a"`: false, `amount gt "a"`: false, `cheap eq 1.5`: true,
		`big eq 12345678901234567890.10`: true, `big eq 12345678901234567890`: false, `big gt 12345678901234567890`: true,
		`part eq 5e-2`: true, `part eq 5`: false, `part eq 0.5`: false, `part gt 0.049`: true, `part lt 0.1`: true,
		`tiny lt 0`: true, `tiny gt -1e-399`: true, `huge gt 1e9998`: true, `huge eq 1e9998`: false,
		`paid eq true`: true, `paid eq false`: false, `paid ne 1`: true, `gone eq null`: true, `gone ne null`: false, `gone exists true`: true, `gone eq false`: false,
		`empty eq ""`: true, `empty eq null`: false, `empty prefix ""`: true, `empty lt "a"`: true, `name gt "Z"`: true, `name prefix "Zo"`: true, `name prefix "o"`: false, `amount prefix "1"`: false,
		`none eq null`: false, `none ne null`: true, `none ne 1`: true, `none exists false`: true, `none exists true`: false, `none lt 1`: false, `none in [null]`: false,
		`amount in [1,"100",1e2]`: true, `amount in [1,"100",null]`: false, `gone in [1,null]`: true,
		`lines.0.sku eq "a-1"`: true, `lines.1.sku prefix "b"`: true, `lines.2.sku exists false`: true, `lines.00.sku exists true`: false, `lines.-1 exists true`: false,
		`lines exists true`: true, `lines ne 1`: true, `lines eq null`: false, `lines.sku exists true`: false, `lines.length exists true`: false,
		`deep.er.0 eq "zero"`: true, `deep.er.0.x exists true`: false, `deep.er gt "a"`: false, `a.b exists true`: false, `name.0 exists true`: false,
	} {
		part := strings.SplitN(words, " ", 3)
		d := filter.DocumentOf([]byte(data))
		f := filter.Filter{condition(t, part[0], part[1], part[2])}
		if got := f.Passes(d); got != want {
			t.Errorf("%s: %t", words, got)
		}
		if miss := f.Miss(d); (miss == nil) != want {
			t.Errorf("%s: %+v", words, miss)
		}
		if got := f.Passes(filter.DocumentOfBody([]byte(`{"id":"evt_1","name":"no","data":` + data + `}`))); got != want {
			t.Errorf("%s of the body: %t", words, got)
		}
	}
}

func TestAMissNamesTheFirstCondition(t *testing.T) {
	t.Parallel()
	f := filter.Filter{condition(t, "a", "eq", "1"), condition(t, "b", "gt", "5"), condition(t, "c", "exists", "true")}
	for data, want := range map[string]*filter.Miss{
		`{"a":1,"b":6,"c":0}`: nil,
		`{"a":1,"b":5}`:       {Condition: f[1], Seen: "5"},
		`{"a":1,"b":[ 7 ]}`:   {Condition: f[1], Seen: "[7]"},
		`{"a":1.0,"b":5.10}`:  {Condition: f[2]},
		`{}`:                  {Condition: f[0]},
		`{"a":"` + strings.Repeat("ü", 200) + `"}`: {Condition: f[0], Seen: `"` + strings.Repeat("ü", 99) + "…"},
		`{"a":"` + strings.Repeat("u", 198) + `"}`: {Condition: f[0], Seen: `"` + strings.Repeat("u", 198) + `"`},
		`{"a":"` + strings.Repeat("u", 199) + `"}`: {Condition: f[0], Seen: `"` + strings.Repeat("u", 199) + "…"},
	} {
		if d := cmp.Diff(want, f.Miss(filter.DocumentOf([]byte(data))), cmpopts.IgnoreUnexported(filter.Condition{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", data, d)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	for words, field := range map[string]string{
		" eq 1": "path", "a. eq 1": "path", ".a eq 1": "path", "a..b eq 1": "path", strings.Repeat("é", 129) + " eq 1": "path", "a.b.c.d.e.f.g.h.i.j.k eq 1": "path",
		"a like 1": "op", "a = 1": "op", "a  1": "op",
		"a eq {}": "value", "a eq []": "value", "a in 1": "value", "a in []": "value", "a in null": "value", "a in [[1]]": "value", "a in {}": "value",
		"a in [" + strings.Repeat("1,", 50) + "1]": "value", "a lt true": "value", "a gte null": "value", "a prefix 1": "value", "a prefix [\"b\"]": "value",
		"a exists 1": "value", "a exists null": "value", "a exists \"true\"": "value", "a eq " + strings.Repeat("1", 65): "value", "a lt 1e10000": "value", "a eq 1e-99999": "value",
		"a gt 1e9999": "value", "a gt 1e-10001": "value",
	} {
		part := strings.SplitN(words, " ", 3)
		if _, problem := filter.New(part[0], filter.Op(part[1]), []byte(part[2])); problem == nil || problem.Field != field || !strings.HasSuffix(problem.Message, ".") {
			t.Errorf("%s: %+v, want a problem of %s", words, problem, field)
		}
	}
	longest := strings.Repeat("é", 128)
	condition(t, longest, "in", "["+strings.Repeat("1,", 49)+"1]")
	condition(t, "a.b.c.d.e.f.g.h.i.j", "eq", "-"+strings.Repeat("1", 63))
	condition(t, "a", "eq", `"`+strings.Repeat("1", 200)+`"`) // no number
	condition(t, "a", "in", "[1e9998,1e-10000]")
}

// TestAFilterIsStored reads what was written, and evaluates it.
func TestAFilterIsStored(t *testing.T) {
	t.Parallel()
	f := filter.Filter{condition(t, "a", "in", ` [ 1.50, "x<" , null ] `), condition(t, "b", "exists", "false")}
	stored, err := f.Value()
	if err != nil {
		t.Fatal(err)
	}
	if want := `[{"path":"a","op":"in","value":[1.50,"x<",null]},{"path":"b","op":"exists","value":false}]`; stored != want {
		t.Error(stored)
	}
	var read filter.Filter
	if err := read.Scan(stored); err != nil {
		t.Fatal(err)
	}
	for data, want := range map[string]bool{`{"a":1.5}`: true, `{"a":"x<"}`: true, `{"a":2}`: false, `{"a":null,"b":1}`: false} {
		if got := read.Passes(filter.DocumentOf([]byte(data))); got != want {
			t.Errorf("%s: %t", data, got)
		}
	}
	if stored, err := (filter.Filter{}).Value(); stored != nil || err != nil {
		t.Errorf("an empty filter is stored as %v, %v", stored, err)
	}
	if err := read.Scan(nil); err != nil || len(read) != 0 {
		t.Errorf("NULL is %v, %v", read, err)
	}
	for _, damaged := range []any{"{", `[{"path":"a","op":"no","value":1}]`, 7} {
		if err := read.Scan(damaged); err == nil {
			t.Errorf("%v was read", damaged)
		}
	}
}

// naive evaluates a condition with reflection, rationals and no thought of speed.
func naive(root any, path, op string, want any) bool {
	value, exists := reflect.ValueOf(root), true
	for part := range strings.SplitSeq(path, ".") {
		for value.Kind() == reflect.Interface {
			value = value.Elem()
		}
		i, err := strconv.ParseUint(part, 10, 8)
		switch {
		case value.Kind() == reflect.Map && value.MapIndex(reflect.ValueOf(part)).IsValid():
			value = value.MapIndex(reflect.ValueOf(part))
		case value.Kind() == reflect.Slice && err == nil && int(i) < value.Len() && fmt.Sprint(i) == part:
			value = value.Index(int(i))
		default:
			exists = false
		}
		if !exists {
			break
		}
	}
	if op == "exists" {
		return exists == want
	}
	var have any
	if exists {
		have = value.Interface()
	}
	order := func(want any) (order int, comparable bool) {
		switch want := want.(type) {
		case json.Number:
			other, ok := have.(json.Number)
			if !ok || !exists {
				return 0, false
			}
			a, _ := new(big.Rat).SetString(string(other))
			b, _ := new(big.Rat).SetString(string(want))
			return a.Cmp(b), true
		case string:
			other, ok := have.(string)
			return slices.Compare([]byte(other), []byte(want)), ok && exists
		case nil:
			return 0, exists && have == nil
		}
		return 0, exists && have == want
	}
	if all, isList := want.([]any); isList {
		return slices.ContainsFunc(all, func(w any) bool { o, ok := order(w); return ok && o == 0 })
	}
	if op == "prefix" {
		text, ok := have.(string)
		return exists && ok && strings.HasPrefix(text, want.(string))
	}
	o, ok := order(want)
	return map[string]bool{"eq": ok && o == 0, "ne": !ok || o != 0, "lt": ok && o < 0, "lte": ok && o <= 0, "gt": ok && o > 0, "gte": ok && o >= 0}[op]
}

// TestFiltersAgreeWithANaiveEvaluation draws documents and conditions that often meet.
func TestFiltersAgreeWithANaiveEvaluation(t *testing.T) {
	t.Parallel()
	numbers := rapid.SampledFrom([]string{"0", "-0", "0.0", "1", "1.0", "1e0", "10e-1", "-1", "0.1", "0.10", "1e2", "100", "1E+2", "99.99", "-99.990", "12345678901234567890", "12345678901234567891", "0e5"})
	texts := rapid.SampledFrom([]string{`""`, `"a"`, `"ab"`, `"b"`, `"1"`, `"é"`, `"\u00e9"`, `"z"`})
	scalars := rapid.OneOf(numbers, texts, rapid.SampledFrom([]string{"true", "false", "null"}))
	names := rapid.SampledFrom([]string{"a", "b", "0", "1"})
	var values func(depth int) *rapid.Generator[string]
	values = func(depth int) *rapid.Generator[string] {
		return rapid.Custom(func(r *rapid.T) string {
			kind := rapid.IntRange(0, 3).Draw(r, "kind")
			if depth == 0 || kind < 2 {
				return scalars.Draw(r, "scalar")
			}
			inner := rapid.SliceOfN(values(depth-1), 0, 3).Draw(r, "inner")
			if kind == 2 {
				return "[" + strings.Join(inner, ",") + "]"
			}
			return object(r, names, inner)
		})
	}
	rapid.Check(t, func(r *rapid.T) {
		data := object(r, names, rapid.SliceOfN(values(2), 0, 4).Draw(r, "values"))
		var root any
		d := json.NewDecoder(strings.NewReader(data))
		d.UseNumber()
		if err := d.Decode(&root); err != nil {
			r.Fatal(err)
		}
		var f filter.Filter
		want := true
		for range rapid.IntRange(1, 3).Draw(r, "conditions") {
			path := strings.Join(rapid.SliceOfN(names, 1, 3).Draw(r, "path"), ".")
			op := rapid.SampledFrom(filter.Ops()).Draw(r, "op")
			value := map[string]*rapid.Generator[string]{
				"lt": rapid.OneOf(numbers, texts), "lte": rapid.OneOf(numbers, texts), "gt": rapid.OneOf(numbers, texts), "gte": rapid.OneOf(numbers, texts),
				"prefix": texts, "exists": rapid.SampledFrom([]string{"true", "false"}),
			}[op]
			if value == nil {
				value = scalars
			}
			text := value.Draw(r, "value")
			if op == "in" {
				text = "[" + strings.Join(rapid.SliceOfN(scalars, 1, 3).Draw(r, "values"), ",") + "]"
			}
			var wanted any
			in := json.NewDecoder(strings.NewReader(text))
			in.UseNumber()
			if err := in.Decode(&wanted); err != nil {
				r.Fatal(err)
			}
			f = append(f, condition(t, path, op, text))
			want = want && naive(root, path, op, wanted)
		}
		if got := f.Passes(filter.DocumentOf([]byte(data))); got != want {
			r.Fatalf("%s passes %s: %t", data, f.Text(), got)
		}
	})
}

// object writes an object with these values, each under another name.
func object(r *rapid.T, names *rapid.Generator[string], values []string) string {
	members := map[string]json.RawMessage{}
	for _, v := range values {
		members[names.Draw(r, "name")] = json.RawMessage(v)
	}
	text, err := json.Marshal(members)
	if err != nil {
		r.Fatal(err)
	}
	return string(text)
}

// BenchmarkFilters evaluates the filters of a thousand subscriptions on one event.
func BenchmarkFilters(b *testing.B) {
	filters := make([]filter.Filter, 1000)
	for i := range filters {
		for j := range filter.MaxConditions {
			filters[i] = append(filters[i], condition(b, fmt.Sprintf("order.f%d", j), "lt", fmt.Sprint(1000+i)))
		}
	}
	for _, size := range []int{1, 256} {
		members := make([]string, 0, size*1024/40)
		for i := range cap(members) {
			members = append(members, fmt.Sprintf(`"f%d":%d,"name of member %d":"some text"`, i, i, i))
		}
		data := []byte(`{"order":{` + strings.Join(members, ",") + `}}`)
		b.Run(fmt.Sprintf("%dKiB", size), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				d, passed := filter.DocumentOf(data), 0
				for _, f := range filters {
					if f.Passes(d) {
						passed++
					}
				}
				if passed != len(filters) {
					b.Fatal(passed)
				}
			}
		})
	}
}

// BenchmarkTheLargestFilter reads a filter with as many conditions and values as are allowed, and evaluates it.
func BenchmarkTheLargestFilter(b *testing.B) {
	var large filter.Filter
	values, members := make([]string, filter.MaxValues), make([]string, filter.MaxConditions)
	for i := range values {
		values[i] = fmt.Sprint(i)
	}
	for i := range members {
		members[i] = fmt.Sprintf(`"f%d":%d`, i, filter.MaxValues-1)
		large = append(large, condition(b, fmt.Sprintf("f%d", i), "in", "["+strings.Join(values, ",")+"]"))
	}
	text, d := large.Text(), filter.DocumentOf([]byte("{"+strings.Join(members, ",")+"}"))
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, err := filter.Parse(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("evaluate", func(b *testing.B) {
		for b.Loop() {
			if !large.Passes(d) {
				b.Fatal("not passed")
			}
		}
	})
}

// TestALongValueIsReadOnce is not parallel, because it counts the memory of the process.
func TestALongValueIsReadOnce(t *testing.T) {
	const filters, size = 1000, 250_000
	f := filter.Filter{condition(t, "n", "gt", "-1"), condition(t, "n", "lt", "0"), condition(t, "o", "exists", "true")}
	d := filter.DocumentOf([]byte(`{"n":0.` + strings.Repeat("0", size) + `1,"o":"` + strings.Repeat("x", size) + `"}`))
	o := filter.Filter{condition(t, "o", "eq", `"y"`)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range filters {
		if f.Passes(d) || f.Miss(d) == nil || o.Miss(d) == nil {
			t.Fatal("it passes")
		}
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 20*size {
		t.Errorf("%d filters took %d bytes of memory", filters, allocated)
	}
}
