package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestTokenRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t, func(o *server.Options) { o.TokenRate = 5 })
		owner, token := storagetest.Organization(t, f.store, "acme", "enterprise", access.RoleOwner)
		_, colleague := storagetest.Member(t, f.store, owner.Organization, "colleague", access.RoleMember)
		_, other := storagetest.Organization(t, f.store, "other", "growth", access.RoleOwner)
		_, key := storagetest.Key(t, f.store, owner, access.EventsRead)
		// passed makes this many requests, and returns how many succeeded and the last response.
		passed := func(as string, times int) (n int, last testResponse) {
			for range times {
				if last = f.do(t, call{"GET /api/v1/whoami/", as, "", nil}); last.StatusCode == 200 {
					n++
				}
			}
			return n, last
		}
		n, last := passed(bearer(token), 12)
		last.want(t, 429, "rate_limited")
		if n != 10 || last.Header.Get("Retry-After") != "1" || last.Header.Get("RateLimit") != "" {
			t.Errorf("%d of 12 passed, the last with %v", n, last.Header)
		}
		if n, _ := passed(bearer(colleague), 1); n != 0 {
			t.Error("a colleague has a rate of their own")
		}
		f.do(t, call{"POST /api/v1/session/", "", `{"token":"` + token.Reveal() + `"}`, nil}).want(t, 429, "rate_limited")
		for name, as := range map[string]string{
			"a token of another organization": bearer(other), "a key": apiKey(key), "a caller with platform:act_as": operator,
		} {
			want := 20
			if as == bearer(other) {
				want = 10
			}
			if n, _ := passed(as, 20); n != want {
				t.Errorf("of 20 requests by %s %d passed", name, n)
			}
		}
		time.Sleep(time.Second)
		if n, _ := passed(bearer(token), 12); n != 5 {
			t.Errorf("after a second %d passed", n)
		}
		time.Sleep(10 * time.Second) // the bucket is forgotten meanwhile
		if n, _ := passed(bearer(token), 12); n != 10 {
			t.Errorf("after ten seconds %d passed", n)
		}
		time.Sleep(1900 * time.Millisecond)
		passed(bearer(token), 9)
		time.Sleep(200 * time.Millisecond) // a new generation of buckets begins
		if n, _ := passed(bearer(token), 12); n != 1 {
			t.Errorf("%d passed of a bucket that was used a moment ago", n)
		}
	})
}
