package server_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestTokenRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t, func(o *server.Options) { o.TokenRate = 5 })
		owner, token := storagetest.Organization(t, f.Store, "acme", "enterprise", access.RoleOwner)
		_, colleague := storagetest.Member(t, f.Store, owner.Organization, "colleague", access.RoleMember)
		_, other := storagetest.Organization(t, f.Store, "other", "growth", access.RoleOwner)
		_, key := storagetest.Key(t, f.Store, owner, access.EventsRead)
		// passed makes this many requests, and returns how many succeeded and the last response.
		passed := func(as string, times int) (n int, last servertest.Response) {
			for range times {
				if last = f.Do(t, "GET /api/v1/whoami/", as, ""); last.StatusCode == 200 {
					n++
				}
			}
			return n, last
		}
		n, last := passed(servertest.Bearer(token), 12)
		last.Want(t, 429, "rate_limited")
		if n != 10 || last.Header.Get("Retry-After") != "1" || last.Header.Get("RateLimit") != "" {
			t.Errorf("%d of 12 passed, the last with %v", n, last.Header)
		}
		if n, _ := passed(servertest.Bearer(colleague), 1); n != 0 {
			t.Error("a colleague has a rate of their own")
		}
		f.Do(t, "POST /api/v1/session/", "", `{"token":"`+token.Reveal()+`"}`).Want(t, 429, "rate_limited")
		with := func(permission string) string {
			role := strings.ReplaceAll(permission, ":", "_")
			f.Do(t, "POST /api/v1/roles/", servertest.Operator, `{"name":"`+role+`","permissions":["`+permission+`"]}`).Want(t, 201, "")
			_, token := storagetest.Organization(t, f.Store, role, "growth", role)
			return servertest.Bearer(token)
		}
		for as, want := range map[string]int{
			servertest.Bearer(other): 10, servertest.APIKey(key): 20, servertest.Operator: 20, with(access.PlatformRead): 10, with(access.PlatformActAs): 20,
		} {
			if n, last := passed(as, 20); n != want {
				t.Errorf("%d of 20 requests passed, want %d, the last with %s", n, want, last.Text)
			}
		}
		time.Sleep(time.Second)
		if n, _ := passed(servertest.Bearer(token), 12); n != 5 {
			t.Errorf("after a second %d passed", n)
		}
		time.Sleep(10 * time.Second) // the bucket is forgotten meanwhile
		if n, _ := passed(servertest.Bearer(token), 12); n != 10 {
			t.Errorf("after ten seconds %d passed", n)
		}
		time.Sleep(1900 * time.Millisecond)
		passed(servertest.Bearer(token), 9)
		time.Sleep(200 * time.Millisecond) // a new generation of buckets begins
		if n, _ := passed(servertest.Bearer(token), 12); n != 1 {
			t.Errorf("%d passed of a bucket that was used a moment ago", n)
		}
	})
}
