package e2e

import (
	"testing"
)

// ofAll makes a list one of all organizations.
const (
	ofAll      = "organization=all&limit=200"
	everyEvent = "/api/v1/events/?" + ofAll
)

// contentReader reads what the API says.
type contentReader struct {
	tb   testing.TB
	as   caller
	read map[string]any // by path
}

// content reads everything that the API says about what is in the file of a process, by path. It leaves out the usage of the days
// before and after the ones of the file.
func content(tb testing.TB, p *process) map[string]any {
	tb.Helper()
	r := contentReader{tb, p.caller, map[string]any{}}
	events, _ := r.list(everyEvent), r.list("/api/v1/audit-events/?"+ofAll)
	newest := events[0].(object)["timestamp"].(string)
	days := "&since=2026-11-01T00:00:00Z&until=" + newest[:len("2026-11-26")] + "T23:59:59Z"
	for _, path := range []string{"usage/keys/?", "usage/organizations/?"} {
		r.list("/api/v1/" + path + ofAll + days)
	}
	for _, path := range []string{"plans/", "permissions/", "roles/", "applied/"} {
		r.list("/api/v1/" + path + "?limit=200")
	}
	for _, o := range r.list("/api/v1/organizations/?limit=200") {
		r.list("/api/v1/organizations/" + o.(object)["id"].(string) + "/members/?limit=200")
	}
	for _, u := range r.list("/api/v1/users/?limit=200") {
		path := "/api/v1/users/" + u.(object)["id"].(string)
		r.list(path + "/access-tokens/?limit=200")
		r.list(path + "/memberships/?limit=200")
	}
	r.list("/api/v1/api-keys/?status=all&" + ofAll)
	for _, s := range r.list("/api/v1/webhooks/subscriptions/?" + ofAll) {
		sub := r.of(s)
		path := "/api/v1/webhooks/subscriptions/" + s.(object)["id"].(string)
		sub.list(path + "/deliveries/?limit=200")
		if s.(object)["url"] == nil {
			sub.list(path + "/feed/")
		}
	}
	for _, e := range events {
		r.of(e).object("/api/v1/events/" + e.(object)["id"].(string) + "/")
	}
	for _, path := range []string{"queue/", "webhooks/backlog/?organization=all", "event-types/", "event-types/order.paid/"} {
		r.object("/api/v1/" + path)
	}
	return r.read
}

// of returns a reader in the organization of an item.
func (r contentReader) of(item any) contentReader {
	r.as.organization = item.(object)["organization_id"].(string)
	return r
}

// object reads one thing.
func (r contentReader) object(path string) object {
	r.tb.Helper()
	var one object
	r.as.must(r.tb, "GET", path, nil, &one)
	r.read[path] = one
	return one
}

// list reads all pages of a list, without the things that each version has built in.
func (r contentReader) list(path string) []any {
	r.tb.Helper()
	items := []any{}
	for next := path; ; {
		var page struct {
			Data       []any
			NextCursor *string `json:"next_cursor"`
			HasMore    *bool   `json:"has_more"` // of a feed, which always has a cursor, and ends a page early if reading is slow
		}
		r.as.must(r.tb, "GET", next, nil, &page)
		for _, item := range page.Data {
			if item.(object)["built_in"] != true {
				items = append(items, item)
			}
		}
		switch {
		case page.NextCursor == nil || page.HasMore != nil && !*page.HasMore:
			r.read[path] = items
			return items
		case page.HasMore != nil:
			next = path + "?after=" + *page.NextCursor
		default:
			next = path + "&cursor=" + *page.NextCursor
		}
	}
}

// forget removes members by name, wherever they are.
func forget(from any, names ...string) {
	switch from := from.(type) {
	case object:
		for _, name := range names {
			delete(from, name)
		}
		for _, value := range from {
			forget(value, names...)
		}
	case []any:
		for _, item := range from {
			forget(item, names...)
		}
	}
}
