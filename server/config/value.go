package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/redact"
)

// value reads, checks and shows the one field of Config that a setting fills. Whatever the source, a value arrives as
// text: the file's scalars are taken as they were written, a list as its items joined with commas.
type value interface {
	kind() string
	set(c *Config, text string) error
	check(c *Config) error
	text(c *Config) string
}

// The kinds, as help shows them. None is a name that viper would convert by itself, so it hands over the text.
const (
	kindText     = "text"
	kindBoolean  = "true|false"
	kindNumber   = "number"
	kindDuration = "duration"
	kindNetworks = "networks"
	kindSize     = "size"
	kindAddress  = "host:port"
	kindSecret   = "secret"
)

// field is a value of type T in Config.
type field[T any] struct {
	label string
	in    func(*Config) *T
	parse func(string) (T, error)
	limit func(T) error
	show  func(T) string
}

func (f field[T]) kind() string { return f.label }

func (f field[T]) set(c *Config, text string) error {
	v, err := f.parse(text)
	if err == nil {
		*f.in(c) = v
	}
	return err
}

func (f field[T]) check(c *Config) error { return f.limit(*f.in(c)) }

func (f field[T]) text(c *Config) string { return f.show(*f.in(c)) }

func same(s string) string              { return s }
func verbatim(s string) (string, error) { return s, nil }
func unlimited[T any](T) error          { return nil }

func text(in func(*Config) *string, limit func(string) error) value {
	return field[string]{kindText, in, verbatim, limit, same}
}

// address is a host:port; optional allows none.
func address(in func(*Config) *string, optional bool) value {
	return field[string]{kindAddress, in, verbatim, func(s string) error {
		if optional && s == "" {
			return nil
		}
		return isAddress(s)
	}, same}
}

func choice(in func(*Config) *string, first, second string) value {
	return field[string]{first + "|" + second, in, verbatim, func(s string) error {
		if s != first && s != second {
			return fmt.Errorf("%s is unknown; write %s or %s", shown(s), first, second)
		}
		return nil
	}, same}
}

func boolean(in func(*Config) *bool) value {
	return field[bool]{kindBoolean, in, func(s string) (bool, error) {
		if s != "true" && s != "false" {
			return false, fmt.Errorf("%s is neither; write true or false", shown(s))
		}
		return s == "true", nil
	}, unlimited[bool], strconv.FormatBool}
}

// within checks the limits that every number and duration has.
func within[T int | int64 | float64 | time.Duration](least, most T, show func(T) string) func(T) error {
	return func(v T) error {
		if v >= least && v <= most { // so said, it refuses NaN
			return nil
		}
		return fmt.Errorf("%s is out of range; write a value from %s to %s", show(v), show(least), show(most))
	}
}

var (
	wholeForm   = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,8})$`)
	decimalForm = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,9})?$`)
	bareForm    = regexp.MustCompile(`^[-+]?[0-9]*\.?[0-9]+$`)
)

func number(in func(*Config) *int, least, most int) value {
	return field[int]{kindNumber, in, func(s string) (int, error) {
		// No hexadecimal, octal or underscores: what YAML makes of 010 is not what it says.
		if !wholeForm.MatchString(s) {
			return 0, fmt.Errorf("%s is no whole number; write digits alone, from %d to %d", shown(s), least, most)
		}
		return strconv.Atoi(s)
	}, within(least, most, strconv.Itoa), strconv.Itoa}
}

func factor(in func(*Config) *float64, least, most float64) value {
	show := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	return field[float64]{kindNumber, in, func(s string) (float64, error) {
		if !decimalForm.MatchString(s) {
			return 0, fmt.Errorf("%s is no number; write one like 2 or 2.5, from %s to %s", shown(s), show(least), show(most))
		}
		return strconv.ParseFloat(s, 64)
	}, within(least, most, show), show}
}

func duration(in func(*Config) *time.Duration, least, most time.Duration) value {
	return field[time.Duration]{kindDuration, in, func(s string) (time.Duration, error) {
		if bareForm.MatchString(s) {
			return 0, fmt.Errorf("%s has no unit; write %s", shown(s), shown(s+"s"))
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, fmt.Errorf(`%s is no duration; write one like "500ms", "15s", "10m" or "720h"`, shown(s))
		}
		return d, nil
	}, within(least, most, short), short}
}

// short writes a duration without the zeros that Duration.String ends in: 720h, not 720h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// units are those of a size, as GOMEMLIMIT has them, the largest first.
var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// size is a number of bytes, written with a unit or without.
func size(in func(*Config) *int64, least, most int64) value {
	return field[int64]{kindSize, in, func(s string) (int64, error) {
		digits, factor := s, int64(1)
		for _, unit := range units {
			if number, found := strings.CutSuffix(s, unit.name); found {
				digits, factor = strings.TrimSuffix(number, " "), unit.bytes
				break
			}
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > most || !sizeForm.MatchString(digits) {
			return 0, fmt.Errorf(`%s is no size; write one like "64MiB" or "1GiB", from %s to %s`, shown(s), inUnit(least), inUnit(most))
		}
		return n * factor, nil
	}, within(least, most, inUnit), inUnit}
}

var sizeForm = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

// inUnit writes a size in the largest unit that leaves it whole.
func inUnit(bytes int64) string {
	for _, unit := range units {
		if bytes%unit.bytes == 0 && bytes > 0 {
			return strconv.FormatInt(bytes/unit.bytes, 10) + unit.name
		}
	}
	return "0B"
}

func networks(in func(*Config) *[]netip.Prefix) value {
	return field[[]netip.Prefix]{kindNetworks, in, parseNetworks, checkNetworks, func(all []netip.Prefix) string {
		texts := make([]string, len(all))
		for i, one := range all {
			texts[i] = one.String()
		}
		return strings.Join(texts, ", ")
	}}
}

func confidential(in func(*Config) *redact.Text, limit func(string) error) value {
	return field[redact.Text]{kindSecret, in, func(s string) (redact.Text, error) { return redact.New(s), nil }, func(s redact.Text) error {
		if s.IsZero() {
			return nil
		}
		return limit(s.Reveal())
	}, func(s redact.Text) string {
		if s.IsZero() {
			return ""
		}
		return s.String()
	}}
}

var levels = []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

func level(in func(*Config) *slog.Level) value {
	show := func(l slog.Level) string { return strings.ToLower(l.String()) }
	errUnknown := errors.New("is no level; write debug, info, warn or error")
	return field[slog.Level]{"debug|info|warn|error", in, func(s string) (slog.Level, error) {
		for _, l := range levels {
			if show(l) == s {
				return l, nil
			}
		}
		return 0, fmt.Errorf("%s %w", shown(s), errUnknown)
	}, func(l slog.Level) error {
		if !slices.Contains(levels, l) {
			return fmt.Errorf("%s %w", show(l), errUnknown)
		}
		return nil
	}, show}
}
