package server_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/storagetest"
	"github.com/keyhook/keyhook/storage/webhook"
)

// tired is a store whose first three searches end before they find anything.
type tired struct {
	server.Store
	from *[]webhook.AttemptFilter
}

func (s tired) AttemptPage(ctx context.Context, organization int64, id string, f webhook.AttemptFilter) (webhook.AttemptPage, error) {
	*s.from = append(*s.from, webhook.AttemptFilter{Before: f.Before, BeforeAt: f.BeforeAt})
	if n := int64(len(*s.from)); n <= 3 {
		return webhook.AttemptPage{Next: 1000 - n, NextAt: 2000 - n}, nil
	}
	return s.Store.AttemptPage(ctx, organization, id, webhook.AttemptFilter{Limit: f.Limit})
}

func (s tired) AuditPage(_ context.Context, _ int64, f access.AuditFilter) (access.Page[access.AuditEvent], error) {
	if f.Before == 0 {
		return access.Page[access.AuditEvent]{Next: 7}, nil
	}
	return access.Page[access.AuditEvent]{}, fault.New(fault.Unavailable, "too_busy", "Try again in a few seconds.")
}

func TestSearches(t *testing.T) {
	t.Parallel()
	var from []webhook.AttemptFilter
	f := start(t, func(o *server.Options) { o.Store = tired{o.Store, &from} })
	owner, token := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	sub, _ := storagetest.Subscription(t, f.Store, owner, "https://example.com/")
	f.Attempted(t, owner, sub, 2)

	t.Run("that end early respond with what they found, and a cursor to continue", func(t *testing.T) {
		path := "/api/v1/webhooks/subscriptions/" + sub.ID + "/deliveries/?event_type=user.created"
		next, pages := "", 0
		for {
			page := f.List(t, servertest.Bearer(token), path+next)
			if pages++; page.NextCursor == nil {
				if len(page.Data) != 2 {
					t.Errorf("%d attempts on the last page, want 2", len(page.Data))
				}
				break
			}
			if len(page.Data) != 0 {
				t.Errorf("%d attempts on page %d, want none", len(page.Data), pages)
			}
			next = "&cursor=" + url.QueryEscape(*page.NextCursor)
		}
		want := []webhook.AttemptFilter{{}, {Before: 999, BeforeAt: 1999}, {Before: 998, BeforeAt: 1998}, {Before: 997, BeforeAt: 1997}}
		if d := cmp.Diff(want, from); d != "" || pages != 4 {
			t.Errorf("%d pages, which went on from (-want +got):\n%s", pages, d)
		}
	})

	t.Run("that wait too long get a Retry-After", func(t *testing.T) {
		page := f.List(t, servertest.Bearer(token), "/api/v1/audit-events/?type=user_created")
		got := f.Do(t, "GET /api/v1/audit-events/?type=user_created&cursor="+*page.NextCursor, servertest.Bearer(token), "")
		if got.Want(t, 503, "too_busy").Header.Get("Retry-After") != "5" {
			t.Errorf("Retry-After is %q", got.Header.Get("Retry-After"))
		}
	})
}
