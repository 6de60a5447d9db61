package form

import (
	"regexp"
	"strconv"
	"time"

	"github.com/keyhook/keyhook/storage/fault"
)

// timeForm is the form of RFC 3339 section 5.6. time.Parse also accepts other forms, such as 2:00:00.
var timeForm = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// parseTime reads a time in RFC 3339. Its year in UTC is from 1 to 9999, so that responses can show it. The problem is nil, or says
// what the time must be.
func parseTime(text string) (at time.Time, problem *fault.Field) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || !timeForm.MatchString(text) {
		return at, &fault.Field{Code: "invalid", Message: "must be a time such as 2030-01-31T12:00:00Z"}
	}
	if year := at.UTC().Year(); year < 1 || year > 9999 {
		return at, &fault.Field{Code: "out_of_range", Message: "must be from 0001-01-01T00:00:00Z on and before 10000-01-01T00:00:00Z"}
	}
	return at, nil
}

// Time returns a time.
func (f *Form) Time(name string) *time.Time { return f.time(name, aTime) }

func (f *Form) time(name, form string) *time.Time {
	text := f.text(name, MaxName, form)
	if text == nil {
		return nil
	}
	at, problem := parseTime(*text)
	if problem != nil {
		f.Refuse(name, problem.Code, "This %s.", problem.Message)
		return nil
	}
	return &at
}

// Expiry returns a time in the future, in milliseconds. Null and a missing field mean no expiry.
func (f *Form) Expiry(name string) *int64 {
	if f.Null(name) {
		return nil
	}
	at := f.time(name, aTime+orNull)
	if at == nil {
		return nil
	}
	if !at.After(time.Now()) {
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
	at, problem := parseTime(value)
	if problem != nil {
		q.Refuse(name, problem.Message+", with + written as %2B")
	}
	return max(1, at.UnixMilli())
}

// Duration formats a duration, in days if it is a whole number of days.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == day:
		return "1 day"
	case d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + " days"
	}
	return d.String()
}
