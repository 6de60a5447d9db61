package form

import (
	"regexp"
	"time"
)

const mustBeTime = "must be a time such as 2030-01-31T12:00:00Z, from the year 1 to 9999"

// timeForm is the form of RFC 3339 section 5.6. time.Parse also accepts other forms, such as 2:00:00.
var timeForm = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// parseTime reads a time in RFC 3339. Its year in UTC is from 1 to 9999, so that responses can show it.
func parseTime(text string) (at time.Time, ok bool) {
	at, err := time.Parse(time.RFC3339, text)
	year := at.UTC().Year()
	return at, err == nil && timeForm.MatchString(text) && year >= 1 && year <= 9999
}

// Time returns a time.
func (f *Form) Time(name string) *time.Time {
	text := f.text(name, f.take(name), MaxName, aTime)
	if text == nil {
		return nil
	}
	at, ok := parseTime(*text)
	if !ok {
		f.Refuse(name, "invalid", "This %s.", mustBeTime)
		return nil
	}
	return &at
}

// Expiry returns a time in the future, in milliseconds. Null and a missing field mean no expiry.
func (f *Form) Expiry(name string) *int64 {
	if f.Null(name) {
		return nil
	}
	at := f.Time(name)
	switch {
	case at == nil:
		return nil
	case !at.After(time.Now()):
		f.Refuse(name, "in_the_past", "This must be in the future.")
		return nil
	}
	return new(at.UnixMilli())
}

// Period returns the times since and until in milliseconds. A missing one is 0.
func (q *Query) Period() (since, until int64) {
	since, until = q.time("since"), q.time("until")
	if q.Valid() && until > 0 && until < since {
		q.Refuse("until", "must not be before since")
	}
	return since, until
}

// RecentPeriod is Period without missing times: without until, the period ends now, and without since, it has the usual length.
func (q *Query) RecentPeriod(now time.Time, usual time.Duration) (since, until int64) {
	since, until = q.Period()
	if until == 0 {
		until = max(now.UnixMilli(), since+1)
	}
	if since == 0 {
		since = max(until-usual.Milliseconds(), 0)
	}
	if q.Valid() && since >= until {
		q.Refuse("until", "must be after since")
	}
	return since, until
}

// time returns a time in milliseconds, or 0 if the parameter is missing. A time that is present is at least 1, because 0 means no
// limit; no data is that old.
func (q *Query) time(name string) int64 {
	value, present := q.values[name]
	if !present {
		return 0
	}
	at, ok := parseTime(value)
	if !ok {
		q.Refuse(name, mustBeTime+", with + written as %2B")
	}
	return max(1, at.UnixMilli())
}
