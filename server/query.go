package server

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/fault"
)

// readQuery reads the query parameters that the route knows. Any other is refused rather than passed over: a filter that
// is misspelt would show everything.
func (c *call) readQuery() error {
	raw := c.request.URL.RawQuery
	if raw == "" {
		return nil
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return fault.New(fault.Malformed, "invalid_parameter", "The query cannot be parsed.").Because(err)
	}
	for name, values := range query {
		switch {
		case !slices.Contains(c.route.parameters, name) && len(c.route.parameters) == 0:
			return fault.New(fault.Malformed, "unknown_parameter", "There are no query parameters here.")
		case !slices.Contains(c.route.parameters, name):
			return fault.New(fault.Malformed, "unknown_parameter", "The query parameters here are %s.", strings.Join(c.route.parameters, ", "))
		case len(values) > 1:
			return invalid(name, "may be given once")
		}
	}
	c.query = query
	return nil
}

// invalid is the fault for a parameter of the query.
func invalid(name, must string) error {
	return fault.New(fault.Malformed, "invalid_parameter", "The parameter %s %s.", name, must)
}

// choice returns a parameter that has one of a few values, or otherwise where it is not given.
func (c *call) choice(name, otherwise string, values ...string) (string, error) {
	if !c.query.Has(name) {
		return otherwise, nil
	}
	value := c.query.Get(name)
	if !slices.Contains(values, value) {
		return "", invalid(name, "must be one of "+strings.Join(values, ", "))
	}
	return value, nil
}

// matching returns a parameter that is valid, empty where it is not given.
func (c *call) matching(name, must string, valid func(string) bool) (string, error) {
	if !c.query.Has(name) {
		return "", nil
	}
	value := c.query.Get(name)
	if !valid(value) {
		return "", invalid(name, must)
	}
	return value, nil
}

// span returns the times since and until in milliseconds, 0 where they are not given.
func (c *call) span() (since, until int64, err error) {
	if since, err = c.time("since"); err != nil {
		return 0, 0, err
	}
	until, err = c.time("until")
	return since, until, err
}

// time returns a time in milliseconds. It is never 0 where it is given, because 0 does not narrow; nothing here is as
// old as that.
func (c *call) time(name string) (int64, error) {
	if !c.query.Has(name) {
		return 0, nil
	}
	at, err := time.Parse(time.RFC3339, c.query.Get(name))
	if err != nil {
		return 0, invalid(name, "must be a time such as 2030-01-31T12:00:00Z, with + written as %2B")
	}
	return max(1, at.UnixMilli()), nil
}
