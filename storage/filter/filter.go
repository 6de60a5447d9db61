// Package filter owns the conditions on the content of events: their form, their limits, and which events pass. It knows no store.
package filter

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// The limits of a filter.
const (
	MaxConditions = 10
	MaxPath       = 128  // characters
	MaxParts      = 10   // of a path
	MaxValues     = 50   // of In
	MaxSize       = 4096 // bytes of a filter as JSON
	maxNumber     = 64   // characters of a number
)

// Op compares the value at a path with the value of a condition.
type Op string

// The operators.
const (
	Equal          Op = "eq"
	NotEqual       Op = "ne"
	In             Op = "in"
	Less           Op = "lt"
	LessOrEqual    Op = "lte"
	Greater        Op = "gt"
	GreaterOrEqual Op = "gte"
	Prefix         Op = "prefix"
	Exists         Op = "exists"
)

// Ops are all operators.
func Ops() []string {
	return []string{string(Equal), string(NotEqual), string(In), string(Less), string(LessOrEqual), string(Greater), string(GreaterOrEqual), string(Prefix), string(Exists)}
}

// Condition is fulfilled by events whose value at a path compares with the value of the condition. Only values of the same JSON type
// compare: strings by their bytes, and numbers exactly, so that 1 equals 1.0. A value of another type, or none, fulfils NotEqual. The
// zero value is no condition; see New.
type Condition struct {
	Path  string          `json:"path"`
	Op    Op              `json:"op"`
	Value json.RawMessage `json:"value"` // compact

	parts []string
	want  []scalar // what may stand at the path; more than one only for In, and then sorted
}

// Filter is passed by events that fulfil all its conditions. An empty filter is passed by every event.
type Filter []Condition

// Problem says what is wrong with a condition. Field is "path", "op" or "value".
type Problem struct {
	Field, Code, Message string
}

// New checks a condition. value is valid JSON.
func New(path string, op Op, value []byte) (c Condition, p *Problem) {
	c = Condition{Path: path, Op: op, parts: strings.Split(path, ".")}
	switch {
	case utf8.RuneCountInString(path) > MaxPath || len(c.parts) > MaxParts || slices.Contains(c.parts, ""):
		return c, &Problem{"path", "invalid", fmt.Sprintf("A path has 1 to %d names or indexes with points between them, and at most %d characters: customer.country, lines.0.sku.", MaxParts, MaxPath)}
	case !slices.Contains(Ops(), string(op)):
		return c, &Problem{"op", "invalid", "The operators are " + strings.Join(Ops(), ", ") + "."}
	}
	var text bytes.Buffer
	if err := json.Compact(&text, value); err != nil {
		return c, &Problem{"value", "invalid", "This must be JSON."}
	}
	c.Value = text.Bytes()
	return c, c.readValue()
}

func (c *Condition) readValue() *Problem {
	value, err := decode(c.Value)
	values := []any{value}
	if c.Op == In {
		if values, _ = value.([]any); len(values) == 0 || len(values) > MaxValues {
			return &Problem{"value", "wrong_type", fmt.Sprintf("The operator in takes an array of 1 to %d values.", MaxValues)}
		}
	}
	c.want = make([]scalar, 0, len(values))
	for _, value := range values {
		want := scalarOf(value)
		allowed, takes := "", "a string, a number, true, false or null"
		switch c.Op {
		case Equal, NotEqual, In:
			allowed = "snbz"
		case Less, LessOrEqual, Greater, GreaterOrEqual:
			allowed, takes = "sn", "a string or a number"
		case Prefix:
			allowed, takes = "s", "a string"
		case Exists:
			allowed, takes = "b", "true or false"
		}
		switch {
		case err != nil || strings.IndexByte(allowed, want.kind) < 0:
			return &Problem{"value", "wrong_type", fmt.Sprintf("The operator %s takes %s.", c.Op, takes)}
		case want.kind == number && (len(value.(json.Number)) > maxNumber || !want.number.isUsual()):
			return &Problem{"value", "invalid", fmt.Sprintf("A number has at most %d characters, and an exponent of at most %d.", maxNumber, usualExponent)}
		}
		c.want = append(c.want, want)
	}
	slices.SortFunc(c.want, scalar.order)
	return nil
}

// Fulfilled reports whether a document fulfils the condition.
func (c *Condition) Fulfilled(d *Document) bool {
	have, want := d.look(c), c.want[0]
	switch c.Op {
	case Exists:
		return have.exists == (want.text == "true")
	case In:
		_, found := slices.BinarySearchFunc(c.want, have.scalar, scalar.order)
		return have.exists && found
	}
	if !have.exists || have.kind != want.kind {
		return c.Op == NotEqual
	}
	order := have.order(want)
	switch c.Op {
	case Less:
		return order < 0
	case LessOrEqual:
		return order <= 0
	case Greater:
		return order > 0
	case GreaterOrEqual:
		return order >= 0
	case Prefix:
		return strings.HasPrefix(have.text, want.text)
	}
	return (order == 0) == (c.Op == Equal)
}

// Miss is the first condition that an event does not fulfil.
type Miss struct {
	Condition Condition
	Seen      string // the value at the path as JSON, cut; empty if there is none
}

// maxSeen is how many bytes of a value a Miss has.
const maxSeen = 200

// Miss returns the first condition that a document does not fulfil, or nil if the document passes.
func (f Filter) Miss(d *Document) *Miss {
	for i := range f {
		if !f[i].Fulfilled(d) {
			return &Miss{Condition: f[i], Seen: d.look(&f[i]).show()}
		}
	}
	return nil
}

// Passes reports whether a document passes.
func (f Filter) Passes(d *Document) bool {
	for i := range f {
		if !f[i].Fulfilled(d) {
			return false
		}
	}
	return true
}

// Size returns about how many bytes of memory the filter takes.
func (f Filter) Size() (bytes int) {
	for i := range f {
		bytes += 100 + 3*len(f[i].Path) + 3*len(f[i].Value) + 100*len(f[i].want)
	}
	return bytes
}

// Words returns what the filter looks at, for logs: paths and operators. Values may be personal data.
func (f Filter) Words() []string {
	words := make([]string, 0, len(f))
	for _, c := range f {
		words = append(words, c.Path+" "+string(c.Op))
	}
	return words
}

// UnmarshalJSON reads and checks a condition.
func (c *Condition) UnmarshalJSON(text []byte) error {
	type unchecked Condition
	var b unchecked
	if err := json.Unmarshal(text, &b); err != nil {
		return err
	}
	made, problem := New(b.Path, b.Op, b.Value)
	if problem != nil {
		return fmt.Errorf("condition on %q: %s", b.Path, problem.Message)
	}
	*c = made
	return nil
}

// Text returns the filter as JSON; empty for an empty one.
func (f Filter) Text() string {
	if len(f) == 0 {
		return ""
	}
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)                           // the values stay as they were written
	if err := e.Encode([]Condition(f)); err != nil { // New has checked the values
		panic(err)
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// Parse reads what Text returned.
func Parse(text string) (f Filter, err error) {
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return nil, fmt.Errorf("read filter: %w", err)
	}
	return f, nil
}

// Value stores the filter; NULL is an empty one.
func (f Filter) Value() (driver.Value, error) {
	if len(f) == 0 {
		return nil, nil
	}
	return f.Text(), nil
}

// Scan reads what Value stored.
func (f *Filter) Scan(src any) (err error) {
	var stored sql.Null[string]
	if err := stored.Scan(src); err != nil {
		return err
	}
	*f, err = Parse(stored.V)
	return err
}
