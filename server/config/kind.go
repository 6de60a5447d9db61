package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyhook/keyhook/dispatch/alert"
	"github.com/keyhook/keyhook/server/console"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/redact"
)

// kind is what the values of a setting look like, and how they are read. Every source gives a value as text: the file gives
// scalars as they were written, and a list as its items joined with commas.
type kind struct {
	label     string // for help; none is a name of a type that viper converts
	parse     func(text string) (any, error)
	separator string // joins the items of a list; empty: a single value
	mend      string // for a value that should be a list; empty: a single value is a list of one item
}

func text(label string, check func(string) error) kind {
	return kind{label: label, parse: func(s string) (any, error) { return s, check(s) }}
}

const secretLabel = "secret"

func secret(check func(string) error) kind {
	return kind{label: secretLabel, parse: func(s string) (any, error) { return redact.New(s), optional(check)(s) }}
}

func optional(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

func choice[T any](values ...T) kind {
	var texts []string
	for _, value := range values {
		texts = append(texts, show(value))
	}
	return kind{label: strings.Join(texts, "|"), parse: func(s string) (any, error) {
		if i := slices.Index(texts, s); i >= 0 {
			return values[i], nil
		}
		return nil, advise(quote(s)+" is not a value of this setting", "write "+strings.Join(texts, " or "))
	}}
}

func limited[T int | int64 | float64 | time.Duration](label, example string, read func(string) (T, error), least, most T) kind {
	limits := "from " + show(least) + " to " + show(most)
	return kind{label: label, parse: func(s string) (any, error) {
		value, err := read(s)
		switch {
		case err != nil:
			return nil, advise(quote(s)+" is not a "+label, "write a value such as "+example+", "+limits)
		case value < least || value > most:
			return nil, advise(show(value)+" is out of range", "write a value "+limits)
		}
		return value, nil
	}}
}

func number(least, most int) kind { return limited("whole number", "16", readWhole, least, most) }

func duration(least, most time.Duration) kind {
	inner := limited("duration", `"500ms", "15s", "12h" or "30d"`, ParseDuration, least, most)
	return kind{label: inner.label, parse: func(s string) (any, error) {
		if decimal.MatchString(s) {
			return nil, advise(quote(s)+" has no unit", "write "+quote(s+"s")+" for seconds, or another unit: ms, m, h, d")
		}
		return inner.parse(s)
	}}
}

func durationOrNone(least, most time.Duration) kind {
	inner := duration(least, most)
	return kind{label: inner.label, parse: func(s string) (any, error) {
		if s == "0" || s == "0s" {
			return time.Duration(0), nil
		}
		return inner.parse(s)
	}}
}

// days is a duration that begins with days, which time.ParseDuration does not know: a day is 24 hours.
var days = regexp.MustCompile(`^([0-9]{1,5})d(.*)$`)

// ParseDuration reads a duration such as 90s, 30d or 1d12h, of settings and of flags.
func ParseDuration(text string) (d time.Duration, err error) {
	if parts := days.FindStringSubmatch(text); parts != nil {
		whole, _ := strconv.Atoi(parts[1])
		d, text = time.Duration(whole)*24*time.Hour, cmp.Or(parts[2], "0s")
	}
	rest, err := time.ParseDuration(text)
	if err != nil || d > 0 && (rest < 0 || d+rest < d) { // the sum may be more than the type can hold
		return 0, errors.New("must be a duration with a unit, such as 90s, 30m, 12h or 30d")
	}
	return d + rest, nil
}

func readWhole(s string) (int, error) {
	if n, err := strconv.Atoi(s); err != nil || strconv.Itoa(n) == s {
		return n, err
	}
	return 0, strconv.ErrSyntax // YAML would read 010 as 8
}

var decimal = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

func readDecimal(s string) (float64, error) {
	if !decimal.MatchString(s) {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(s, 64)
}

// units are the units of a size, as in GOMEMLIMIT, the largest first.
var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

func readSize(s string) (int64, error) {
	for _, unit := range units {
		if digits, found := strings.CutSuffix(s, unit.name); found {
			n, err := readWhole(strings.TrimSuffix(digits, " "))
			if err != nil || n < 0 || int64(n) > math.MaxInt64/unit.bytes {
				return 0, strconv.ErrSyntax
			}
			return int64(n) * unit.bytes, nil
		}
	}
	return 0, strconv.ErrSyntax // unreachable: every text ends with the last unit
}

// networks takes addresses and networks. An address is the network of that one address.
var networks = items("networks", "10.0.0.0/8", 1000, "combine them into larger networks", access.ParseNetwork)

var notices = items("durations", "720h, 24h", 10, "remove some", func(s string) (time.Duration, error) {
	value, err := duration(time.Hour, 365*day).parse(s)
	d, _ := value.(time.Duration) // nil if err is not
	return d, err
})

var origins = items("origins", "https://app.example.com", 20, "remove some", parseOrigin)

var portalPages = items("pages", "subscriptions, events", len(console.PortalPages()), "write each page once", func(s string) (string, error) {
	if !slices.Contains(console.PortalPages(), s) {
		return "", advise(quote(s)+" is no page of the portal", "write one of: "+strings.Join(console.PortalPages(), ", "))
	}
	return s, nil
})

// items takes values separated by commas. The error has each wrong item. mend helps against more than most items.
func items[T any](label, example string, most int, mend string, read func(string) (T, error)) kind {
	written := "write [" + example + "], or one item per line with a hyphen before it"
	return kind{label: label, separator: ",", mend: written, parse: func(s string) (any, error) {
		var all []T
		if strings.TrimSpace(s) == "" {
			return all, nil
		}
		var wrong []error
		for item := range strings.SplitSeq(s, ",") {
			item = strings.TrimSpace(item)
			value, err := read(item)
			if item == "" {
				err = advise("the list has an empty item", "remove the extra comma")
			}
			all, wrong = append(all, value), append(wrong, err)
		}
		if len(all) > most {
			return nil, advise(fmt.Sprintf("the list has more than %d items", most), mend)
		}
		return all, errors.Join(wrong...)
	}}
}

// urlStart begins a service URL in a list. A comma alone does not separate two URLs, because a URL may contain one.
var urlStart = regexp.MustCompile(`,\s*([a-z][a-z0-9+]*://)`)

// serviceURLs takes URLs of services for alerts, separated by spaces, line breaks, or commas before a scheme. The error has each wrong URL.
var serviceURLs = kind{label: secretLabel, separator: "\n", parse: func(s string) (any, error) {
	var urls []redact.Text
	for item := range strings.FieldsSeq(urlStart.ReplaceAllString(s, " $1")) {
		urls = append(urls, redact.New(item))
	}
	if len(urls) > maxServiceURLs {
		return nil, advise(fmt.Sprintf("the list has more than %d URLs", maxServiceURLs), "remove some")
	}
	_, err := alert.Channels(urls)
	return urls, err
}}

const maxServiceURLs = 20

// show returns the text of a value, or of each item of a list. A secret is redacted.
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
	case slog.Level:
		return strings.ToLower(v.String())
	case redact.Text:
		if v.IsZero() {
			return ""
		}
	}
	if list := reflect.ValueOf(value); list.Kind() == reflect.Slice {
		texts := make([]string, list.Len())
		for i := range texts {
			texts[i] = show(list.Index(i).Interface())
		}
		return strings.Join(texts, ", ")
	}
	return fmt.Sprint(value)
}

// zeros are the zeros at the end of Duration.String: 720h0m0s is 720h.
var zeros = regexp.MustCompile(`([hm])(0m)?0s$`)

// quote returns a text in a message: quoted, without control characters, and cut if it is long.
func quote(text string) string { return fmt.Sprintf("%.80q", text) }
