package check_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/storage/access"
)

var (
	busyAddress  = netip.MustParseAddr("198.51.100.7")
	otherAddress = netip.MustParseAddr("203.0.0.1")
	unknownKey   = access.Digest{255}
)

// inVirtualTime runs a test of a new checker, whose busyAddress is blocked.
func inVirtualTime(t *testing.T, test func(t *testing.T, k *check.Checker)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := check.New(nil, nil, limiter.New(limiter.Window), check.DefaultTokenRate)
		block(t, k)
		test(t, k)
	})
}

// block makes busyAddress fail until it is blocked.
func block(t *testing.T, k *check.Checker) {
	t.Helper()
	for range 100 {
		if _, blocked := k.Blocked(busyAddress, unknownKey); blocked {
			return
		}
		k.Fail(busyAddress)
	}
	t.Fatal("an address with 100 failures is not blocked")
}

// failOthers has n addresses fail once each, from the given one on, and returns the next.
func failOthers(k *check.Checker, address netip.Addr, n int) (next netip.Addr) {
	for range n {
		k.Fail(address)
		address = address.Next()
	}
	return address
}

func TestThrottleForgets(t *testing.T) {
	t.Parallel()

	t.Run("addresses that rest, and not an address that continues to fail", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, k *check.Checker) {
			next := otherAddress
			for range 4 {
				next = failOthers(k, next, check.MaxAddresses/2)
				k.Fail(busyAddress)
			}
			if _, blocked := k.Blocked(busyAddress, unknownKey); !blocked {
				t.Error("the busiest address was forgotten")
			}
		})
	})

	t.Run("the address with the oldest failure", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, k *check.Checker) {
			next := failOthers(k, otherAddress, check.MaxAddresses-1)
			if _, blocked := k.Blocked(busyAddress, unknownKey); !blocked {
				t.Error("an address was forgotten while there was room")
			}
			k.Fail(next)
			if _, blocked := k.Blocked(busyAddress, unknownKey); blocked {
				t.Error("the address with the oldest failure is still remembered")
			}
		})
	})

	t.Run("a revoked credential, which gets one lookup and no more", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, k *check.Checker) {
			revoked := access.Digest{1}
			k.Succeed(revoked)
			for i := range check.MaxVerified { // revoked is in the older half now
				k.Succeed(access.Digest{2, byte(i >> 8), byte(i)})
			}
			if _, blocked := k.Blocked(busyAddress, revoked); blocked {
				t.Error("a credential that was valid got no lookup")
			}
			k.FailWith(busyAddress, revoked)
			if _, blocked := k.Blocked(busyAddress, revoked); !blocked {
				t.Error("the revoked credential got a second lookup")
			}
		})
	})
}

func TestThrottleRemembersCredentialsInUse(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, k *check.Checker) {
		used := access.Digest{1}
		for half := range 5 {
			k.Succeed(used)
			for i := range check.MaxVerified - 1 {
				k.Succeed(access.Digest{2, byte(half), byte(i >> 8), byte(i)})
			}
			if _, blocked := k.Blocked(busyAddress, used); blocked {
				t.Fatalf("a credential in use was forgotten in round %d", half)
			}
		}
	})
}

// lookups returns how many of 10,000 lookups an address gets at once.
func lookups(k *check.Checker, client netip.Addr) (n int) {
	for range 10_000 {
		if k.MayLookUp(client) {
			n++
		}
	}
	return n
}

func TestThrottleBoundsLookups(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, k *check.Checker) {
		if n := lookups(k, busyAddress); n != 500 {
			t.Errorf("a blocked address gets %d lookups at once", n)
		}
		time.Sleep(time.Second)
		if n := lookups(k, busyAddress); n != 500 {
			t.Errorf("it gets %d a second later", n)
		}
		if n := lookups(k, otherAddress); n != 10_000 {
			t.Errorf("an address that is not blocked gets %d", n)
		}
		time.Sleep(2 * time.Second) // until all have as many as at the beginning
		all, address := 0, otherAddress
		for range 10 {
			for _, blocked := k.Blocked(address, unknownKey); !blocked; _, blocked = k.Blocked(address, unknownKey) {
				k.Fail(address)
			}
			all += lookups(k, address)
			address = address.Next()
		}
		if all != 2_000 {
			t.Errorf("ten blocked addresses get %d lookups at once", all)
		}
	})
}

func TestThrottleSaysHowLongToWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, k *check.Checker) {
		if wait, _ := k.Blocked(busyAddress, unknownKey); wait != 3*time.Second {
			t.Errorf("at once: %s, want 3s", wait)
		}
		time.Sleep(1700 * time.Millisecond)
		wait, _ := k.Blocked(busyAddress, unknownKey)
		if wait != 1300*time.Millisecond {
			t.Errorf("after 1.7 s: %s, want 1.3s", wait)
		}
		time.Sleep(wait)
		if _, blocked := k.Blocked(busyAddress, unknownKey); blocked {
			t.Error("still blocked after the wait")
		}
	})
}
