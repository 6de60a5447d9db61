package access_test

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/storage/access"
)

func TestParseNetwork(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.0.0.0/8": "10.0.0.0/8", "192.0.2.7": "192.0.2.7/32", "2001:db8::1": "2001:db8::1/128", "fd00::/8": "fd00::/8", "0.0.0.0/0": "0.0.0.0/0",
	} {
		if p, err := access.ParseNetwork(text); err != nil || p.String() != want {
			t.Errorf("%s: %v, %v", text, p, err)
		}
	}
	for text, says := range map[string]string{
		"":                      "write an item such as 10.0.0.0/8",
		"example.com":           "write an item such as 10.0.0.0/8",
		"10.0.0.0/33":           "write an item such as 10.0.0.0/8",
		"fe80::1%eth0":          "write an item such as 10.0.0.0/8",
		"10.1.2.3/8":            `write "10.0.0.0/8" or "10.1.2.3"`,
		"2001:db8::1/32":        `write "2001:db8::/32" or "2001:db8::1"`,
		"::ffff:10.1.2.3":       `write "10.1.2.3/32"`,
		"::ffff:10.1.0.0/112":   `write "10.1.0.0/16"`,
		"::ffff:0:0/90":         "write the network as IPv4",
		strings.Repeat("x", 99): strings.Repeat("x", 79),
	} {
		if p, err := access.ParseNetwork(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v; want %s", text, p, err, says)
		}
	}
}

func TestNetworksAllow(t *testing.T) {
	t.Parallel()
	networks := access.Networks{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	for addr, want := range map[string]bool{
		"10.255.0.1": true, "::ffff:10.0.0.1": true, "11.0.0.0": false, "2001:db8:1::1": true, "2001:db8::1%eth0": true, "2001:db9::": false, "::": false,
	} {
		if got := networks.Allow(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	if networks.Allow(netip.Addr{}) {
		t.Error("a caller without an address is in a network")
	}
	if !(access.Networks(nil)).Allow(netip.Addr{}) {
		t.Error("without networks, some caller is refused")
	}
}

// The text of the database gives the same networks again.
func TestNetworksScan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var networks access.Networks
		for range rapid.IntRange(0, access.MaxNetworks).Draw(t, "networks") {
			addr, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address"))
			networks = append(networks, netip.PrefixFrom(addr, rapid.IntRange(0, 32).Draw(t, "bits")).Masked())
		}
		var read access.Networks
		if err := read.Scan(networks.String()); err != nil || read.String() != networks.String() || len(read.Texts()) != len(networks) {
			t.Fatalf("%v became %v, %v", networks, read, err)
		}
	})
	var read access.Networks
	if err := read.Scan([]byte("10.0.0.0/8")); err == nil {
		t.Error("bytes were read")
	}
	if err := read.Scan("10.0.0.0/8 nonsense"); err == nil {
		t.Error("nonsense was read")
	}
}
