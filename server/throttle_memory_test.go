package server_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// failOthers has n addresses fail once each, from the given one on, and returns the next.
func (f *floor) failOthers(address netip.Addr, n int) (next netip.Addr) {
	for range n {
		f.server.Fail(address)
		address = address.Next()
	}
	return address
}

// These tests fill the memory of the throttle.
func TestThrottleForgets(t *testing.T) {
	t.Parallel()
	const peer = "198.51.100.7:1000"
	busy, other := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("203.0.0.1")

	t.Run("addresses that rest and not one that goes on failing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := build(t)
			f.exhaust(t, peer)
			next := other
			for range 4 {
				next = f.failOthers(next, server.MaxAddresses/2)
				f.server.Fail(busy)
			}
			if status, _ := f.from(peer, apiKey(access.Mint("svc"))); status != 429 {
				t.Errorf("status %d of the busiest address, want 429", status)
			}
		})
	})

	t.Run("the address that has rested longest", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := build(t)
			f.exhaust(t, peer)
			f.failOthers(other, server.MaxAddresses-1)
			if status, _ := f.from(peer, apiKey(access.Mint("svc"))); status != 429 {
				t.Errorf("status %d while there is room, want 429", status)
			}
			f.server.Fail(netip.MustParseAddr("192.0.2.1"))
			if status, _ := f.from(peer, apiKey(access.Mint("svc"))); status != 401 {
				t.Errorf("status %d after it was forgotten, want 401", status)
			}
		})
	})
}

func TestThrottleTellsHowLongToWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		const peer = "198.51.100.7:1000"
		f.exhaust(t, peer)
		wait := func() time.Duration {
			r, w := httptest.NewRequest(http.MethodGet, "/api/v1/whoami/", nil), httptest.NewRecorder()
			r.RemoteAddr = peer
			r.Header.Set("Authorization", apiKey(access.Mint("svc")))
			f.server.Handler().ServeHTTP(w, r)
			seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
			if w.Code != 429 || err != nil {
				t.Fatalf("status %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
			}
			return time.Duration(seconds) * time.Second
		}
		if got := wait(); got != 3*time.Second {
			t.Errorf("at once: %s, want 3s", got)
		}
		time.Sleep(1700 * time.Millisecond)
		left := wait()
		if left != 2*time.Second {
			t.Errorf("after 1.7 s: %s, want 2s", left)
		}
		time.Sleep(left)
		if status, _ := f.from(peer, apiKey(access.Mint("svc"))); status != 401 {
			t.Errorf("status %d after the wait, want 401", status)
		}
	})
}

// A credential that is shown again and again is not forgotten, whatever number of others is seen.
func TestThrottleRemembersCredentialsInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		owner, _ := storagetest.Tenant(t, f.store, "acme", "enterprise", access.RoleOwner)
		_, credential := storagetest.Key(t, f.store, owner, access.APIKeysRead)
		const peer = "198.51.100.7:1000"
		for half := range 5 {
			if status, _ := f.from(peer, apiKey(credential)); status != 200 {
				t.Fatalf("status %d", status)
			}
			for i := range server.MaxProven - 1 {
				f.server.Prove(access.Digest{1, byte(half), byte(i >> 8), byte(i)})
			}
		}
		f.exhaust(t, peer)
		if status, _ := f.from(peer, apiKey(credential)); status != 200 {
			t.Errorf("status %d of a credential in use, want 200", status)
		}
	})
}

// A revoked credential is let through to its look-up once and not again, however long ago it was good.
func TestThrottleForgetsARevokedCredential(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := build(t)
		owner, _ := storagetest.Tenant(t, f.store, "acme", "enterprise", access.RoleOwner)
		key, credential := storagetest.Key(t, f.store, owner, access.APIKeysRead)
		const peer = "198.51.100.7:1000"
		f.from(peer, apiKey(credential))
		for i := range server.MaxProven {
			f.server.Prove(access.Digest{1, byte(i >> 8), byte(i)})
		}
		f.exhaust(t, peer)
		if err := f.store.RevokeKey(t.Context(), owner.Actor("", ""), owner.Organization.RowID, key.ID); err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{401, 429} {
			if status, _ := f.from(peer, apiKey(credential)); status != want {
				t.Errorf("request %d: status %d, want %d", i+1, status, want)
			}
		}
	})
}
