package server_test

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server"
)

func TestProxyWarning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t, func(o *server.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
		warnings := func() int { return strings.Count(f.Log.String(), "is not in server.trusted_proxies") }
		for _, quiet := range []struct {
			peer   string
			header []string
		}{
			{"203.0.113.9:1", nil},
			{"10.0.0.1:1", []string{"X-Forwarded-For", "203.0.113.9"}},
			{"127.0.0.1:1", []string{"X-Forwarded-For", "203.0.113.9"}},
			{"@", []string{"X-Forwarded-For", "203.0.113.9"}},
		} {
			f.asked(quiet.peer, "GET /nothing", quiet.header...)
			if warnings() != 0 {
				t.Errorf("a warning about %s %v", quiet.peer, quiet.header)
			}
		}
		for range 3 {
			f.asked("192.168.1.10:1", "GET /nothing", "X-Forwarded-For", "203.0.113.9")
		}
		if warnings() != 1 || !strings.Contains(f.Log.String(), `"peer":"192.168.1.10"`) {
			t.Errorf("%d warnings at once", warnings())
		}
		time.Sleep(time.Hour - time.Second)
		f.asked("192.168.1.11:1", "GET /nothing", "X-Forwarded-For", "203.0.113.9")
		if warnings() != 1 {
			t.Errorf("%d warnings within an hour", warnings())
		}
		time.Sleep(time.Second)
		f.asked("192.168.1.11:1", "GET /nothing", "X-Forwarded-For", "203.0.113.9")
		if warnings() != 2 {
			t.Errorf("%d warnings after an hour", warnings())
		}
	})
}
