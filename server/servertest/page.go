package servertest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Page is the body of a page.
type Page struct {
	Data       []map[string]any `json:"data"`
	HasMore    *bool            `json:"has_more"`
	NextCursor *string          `json:"next_cursor"`
}

// List reads one page.
func (f *Fixture) List(t testing.TB, as, path string) Page {
	t.Helper()
	var page Page
	if err := json.Unmarshal([]byte(f.Do(t, "GET "+path, as, "").Want(t, 200, "").Text), &page); err != nil {
		t.Fatal(err)
	}
	if page.Data == nil || page.HasMore == nil || *page.HasMore != (page.NextCursor != nil) {
		t.Fatalf("%s: incomplete page %+v", path, page)
	}
	return page
}

// All reads a list page by page.
func (f *Fixture) All(t testing.TB, as, path, id string, limit int) (ids []string) {
	t.Helper()
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	for next := ""; ; {
		page := f.List(t, as, fmt.Sprintf("%s%slimit=%d%s", path, join, limit, next))
		for _, item := range page.Data {
			ids = append(ids, item[id].(string))
		}
		if page.NextCursor == nil {
			return ids
		}
		if len(page.Data) != limit {
			t.Fatalf("%s: a page of %d with more behind it, want %d", path, len(page.Data), limit)
		}
		next = "&cursor=" + url.QueryEscape(*page.NextCursor)
	}
}

// Attempted publishes events to a subscription and records one attempt of each: odd ones fail, even ones succeed.
func (f *Fixture) Attempted(t testing.TB, owner access.Principal, sub webhook.Subscription, n int) {
	t.Helper()
	for range n {
		storagetest.Publish(t, f.Store, owner, "user.created")
	}
	x := storagetest.Customer{Store: f.Store, Owner: owner, Sub: sub}
	jobs := slices.DeleteFunc(x.Jobs(t), func(j webhook.Job) bool { return j.EventType != "user.created" })
	for i, job := range jobs[len(jobs)-n:] {
		result := x.Result(t, job, x.Begin(t, job), i%2 == 0)
		result.ResponseBody, result.ResponseHeader = "thanks", "X-Request-Id: 7\n"
		result.RetryAt, result.ProbeAt = time.Now().Add(time.Minute).UnixMilli(), 0
		if _, err := f.Store.Queue.Record(t.Context(), result); err != nil || result.Attempt == 0 {
			t.Fatalf("record attempt %d: %v", result.Attempt, err)
		}
	}
}
