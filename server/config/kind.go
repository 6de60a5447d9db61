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

// kind is what the values of a setting look like, and how they are read. Every source gives a value as text: the file gives
// scalars as they were written, and a list as its items joined with commas.
type kind struct {
	label string // for help; none is a name of a type that viper converts
	parse func(text string) (any, error)
}

// text takes any text that passes the check.
func text(check func(string) error) kind {
	return kind{"text", func(s string) (any, error) { return s, check(s) }}
}

// address takes host:port.
func address(check func(string) error) kind {
	return kind{"host:port", func(s string) (any, error) { return s, check(s) }}
}

// optional lets a text be empty.
func optional(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

func choice(first, second string) kind {
	return kind{first + "|" + second, func(s string) (any, error) {
		if s != first && s != second {
			return nil, advise(shown(s)+" is not a choice", "write "+first+" or "+second)
		}
		return s, nil
	}}
}

var boolean = kind{"true|false", func(s string) (any, error) {
	if s != "true" && s != "false" {
		return nil, advise(shown(s)+" is neither true nor false", "write true or false")
	}
	return s == "true", nil
}}

// between checks the limits of a number, duration or size.
func between[T int | int64 | float64 | time.Duration](value, least, most T) (any, error) {
	if value < least || value > most {
		return nil, advise(show(value)+" is out of range", "write a value from "+show(least)+" to "+show(most))
	}
	return value, nil
}

func number(least, most int) kind {
	return kind{"number", func(s string) (any, error) {
		n, err := strconv.Atoi(s)
		if err != nil || strconv.Itoa(n) != s { // YAML would read 010 as 8
			return nil, advise(shown(s)+" is not a whole number", fmt.Sprintf("write digits only, from %d to %d", least, most))
		}
		return between(n, least, most)
	}}
}

func factor(least, most float64) kind {
	return kind{"number", func(s string) (any, error) {
		if !decimal.MatchString(s) {
			return nil, advise(shown(s)+" is not a number", "write one like 2 or 2.5, from "+show(least)+" to "+show(most))
		}
		value, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, err
		}
		return between(value, least, most)
	}}
}

var decimal = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

func duration(least, most time.Duration) kind {
	return kind{"duration", func(s string) (any, error) {
		if decimal.MatchString(s) {
			return nil, advise(shown(s)+" has no unit", "write "+shown(s+"s"))
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			return nil, advise(shown(s)+" is not a duration", `write one like "500ms", "15s", "10m" or "720h"`)
		}
		return between(d, least, most)
	}}
}

// units are the units of a size, as in GOMEMLIMIT, the largest first.
var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

// size takes a number of bytes, with a unit or without.
func size(least, most int64) kind {
	return kind{"size", func(s string) (any, error) {
		for _, unit := range units {
			digits, found := strings.CutSuffix(s, unit.name)
			if !found {
				continue
			}
			digits = strings.TrimSuffix(digits, " ")
			if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n >= 0 && n <= most && strconv.FormatInt(n, 10) == digits {
				return between(n*unit.bytes, least, most)
			}
			break
		}
		return nil, advise(shown(s)+" is not a size", `write one like "64MiB" or "1GiB", from `+show(least)+" to "+show(most))
	}}
}

const maxNetworks = 1000

// networks takes addresses and networks separated by commas. An address is the network of that one address. The error has
// each wrong item.
var networks = kind{"networks", func(s string) (any, error) {
	var all []netip.Prefix
	if strings.TrimSpace(s) == "" {
		return all, nil
	}
	var wrong []error
	for item := range strings.SplitSeq(s, ",") {
		network, err := parseNetwork(strings.TrimSpace(item))
		all, wrong = append(all, network), append(wrong, err)
	}
	if len(all) > maxNetworks {
		return nil, advise(fmt.Sprintf("has more than %d items", maxNetworks), "join them to larger networks")
	}
	return all, errors.Join(wrong...)
}}

// secret takes a text that passes the check, or none.
func secret(check func(string) error) kind {
	return kind{"secret", func(s string) (any, error) { return redact.New(s), optional(check)(s) }}
}

var levels = []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

var level = kind{"debug|info|warn|error", func(s string) (any, error) {
	i := slices.IndexFunc(levels, func(l slog.Level) bool { return show(l) == s })
	if i < 0 {
		return nil, advise(shown(s)+" is not a level", "write debug, info, warn or error")
	}
	return levels[i], nil
}}

// show returns the text of a value. A secret is redacted.
func show(value any) string {
	switch v := value.(type) {
	case time.Duration:
		return zeros.ReplaceAllString(v.String(), "$1")
	case int64:
		for _, unit := range units {
			if v%unit.bytes == 0 && v > 0 {
				return strconv.FormatInt(v/unit.bytes, 10) + unit.name
			}
		}
	case []netip.Prefix:
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ", "), "[]")
	case slog.Level:
		return strings.ToLower(v.String())
	case redact.Text:
		if v.IsZero() {
			return ""
		}
	}
	return fmt.Sprint(value)
}

// zeros are the zeros at the end of Duration.String: 720h0m0s is 720h.
var zeros = regexp.MustCompile(`([hm])(0m)?0s$`)

// shown is a text in a message: quoted, without control characters, and cut if it is long.
func shown(text string) string { return fmt.Sprintf("%.80q", text) }
