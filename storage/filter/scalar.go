package filter

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
)

// The kinds of values. Values of different kinds do not compare.
const (
	text    = 's'
	number  = 'n'
	boolean = 'b'
	null    = 'z'
	nested  = 'o' // an object or an array; it compares with nothing
)

type scalar struct {
	kind   byte
	text   string // of a string, or true or false
	number decimal
}

func scalarOf(value any) scalar {
	switch v := value.(type) {
	case string:
		return scalar{kind: text, text: v}
	case json.Number:
		return scalar{kind: number, number: parseDecimal(string(v))}
	case bool:
		return scalar{kind: boolean, text: strconv.FormatBool(v)}
	case nil:
		return scalar{kind: null}
	}
	return scalar{kind: nested}
}

// order returns -1, 0 or 1. It is 0 only for two of the same kind.
func (s scalar) order(other scalar) int {
	if s.kind == number && other.kind == number {
		return s.number.compare(other.number)
	}
	return cmp.Or(cmp.Compare(s.kind, other.kind), strings.Compare(s.text, other.text))
}

// usualExponent limits the exponent of a number in a condition. So one that no variable holds, in an event, is still compared exactly
// with it.
const usualExponent = 9999

// decimal is sign × 0.digits × 10^exponent. The digits begin and end with one that is not 0. Zero has no digits.
type decimal struct {
	sign     int // -1, 0 or 1
	digits   string
	exponent int64
}

func (d decimal) isUsual() bool { return -usualExponent <= d.exponent && d.exponent <= usualExponent }

func parseDecimal(s string) (d decimal) {
	d.sign = 1
	if rest, isNegative := strings.CutPrefix(s, "-"); isNegative {
		d.sign, s = -1, rest
	}
	mantissa, exponent := s, ""
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent = s[:i], s[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	significant := strings.TrimLeft(whole+fraction, "0")
	d.exponent = int64(len(significant) - len(fraction))
	if d.digits = strings.TrimRight(significant, "0"); d.digits == "" {
		return decimal{}
	}
	if exponent != "" {
		const huge = 1 << 40 // more than the digits of any event can make good
		n, _ := strconv.ParseInt(exponent, 10, 64)
		d.exponent += min(max(n, -huge), huge) // ParseInt returns the nearest number to one out of range
	}
	return d
}

func (d decimal) compare(other decimal) int {
	if d.sign != other.sign || d.sign == 0 {
		return cmp.Compare(d.sign, other.sign)
	}
	return d.sign * cmp.Or(cmp.Compare(d.exponent, other.exponent), strings.Compare(d.digits, other.digits))
}
