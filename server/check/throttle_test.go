package check_test

import (
	"net/netip"
	"testing"

	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/storage/access"
)

func TestThrottle(t *testing.T) {
	t.Parallel()
	t.Run("remembers a bounded number of addresses", func(t *testing.T) {
		t.Parallel()
		k := check.New(nil, nil, limiter.New(limiter.Window), check.DefaultTokenRate)
		address := netip.MustParseAddr("203.0.0.1")
		for range check.MaxAddresses + 500 {
			k.Fail(address)
			address = address.Next()
		}
		if got := k.FailedAddresses(); got != check.MaxAddresses {
			t.Errorf("%d addresses remembered, want %d", got, check.MaxAddresses)
		}
	})
	t.Run("remembers a bounded number of valid credentials", func(t *testing.T) {
		t.Parallel()
		k := check.New(nil, nil, limiter.New(limiter.Window), check.DefaultTokenRate)
		for n := range 5 * check.MaxVerified {
			k.Succeed(access.Digest{byte(n), byte(n >> 8), byte(n >> 16)})
		}
		if got := k.Verified(); got > 2*check.MaxVerified || got < check.MaxVerified {
			t.Errorf("%d credentials remembered, want %d to %d", got, check.MaxVerified, 2*check.MaxVerified)
		}
	})
}
