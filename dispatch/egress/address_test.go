package egress_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/dispatch/egress"
)

// The addresses that the tests of the transport use.
var (
	blocked = strings.Fields(`
		0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 169.254.169.254 169.254.170.2
		172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.31.196.1 192.52.193.1 192.88.99.1 192.168.1.1
		192.175.48.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1
		255.255.255.255 168.63.129.16
		:: ::1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:10.0.0.1 ::ffff:168.63.129.16 ::ffff:0:10.0.0.1 ::127.0.0.1
		::a9fe:a9fe 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::808:808 64:ff9b:1::a9fe:a9fe 100::1 100:0:0:1::1 2001::1
		2001:0:5ef5:79fd:0:0:0:1 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 2002:7f00:1:: 2002:a9fe:a9fe::1
		2002:808:808::1 2620:4f:8000::1 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fd20:ce::254 fe80::1 fe80::a9fe:a9fe fec0::1
		ff02::1 4000::1 8000::1`)
	zoned   = strings.Fields(`fe80::1%eth0 fe80::1%lo fe80::a9fe:a9fe%lo 2606:4700:4700::1111%lo ::ffff:8.8.8.8%lo`)
	allowed = strings.Fields(`
		1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 172.15.255.255 172.32.0.1 100.63.255.255 100.128.0.1 126.255.255.255
		128.0.0.1 169.253.255.255 169.255.0.1 168.63.129.15 168.63.129.17 192.0.1.1 198.17.255.255 198.20.0.1
		223.255.255.255 ::ffff:8.8.8.8 2606:4700:4700::1111 2a00:1450:4001::1 2001:4860:4860::8888 2001:200::1 2003::1
		3ffe::1 3fff:1000::1`)
)

func TestCheckAddr(t *testing.T) {
	t.Parallel()

	t.Run("addresses outside the public internet are refused, also mapped into IPv6", func(t *testing.T) {
		t.Parallel()
		for _, text := range append(append([]string{}, blocked...), zoned...) {
			a := netip.MustParseAddr(text)
			if err := (egress.Policy{}).CheckAddr(a); !errors.Is(err, egress.ErrBlocked) {
				t.Errorf("%s: %v", text, err)
			}
			if mapped := netip.AddrFrom16(a.As16()); a.Is4() {
				if err := (egress.Policy{}).CheckAddr(mapped); !errors.Is(err, egress.ErrBlocked) {
					t.Errorf("%s: %v", mapped, err)
				}
			}
		}
	})

	t.Run("addresses of the public internet are accepted, also mapped into IPv6", func(t *testing.T) {
		t.Parallel()
		for _, text := range allowed {
			a := netip.MustParseAddr(text)
			if err := (egress.Policy{}).CheckAddr(a); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			if err := (egress.Policy{}).CheckAddr(netip.AddrFrom16(a.As16())); err != nil {
				t.Errorf("%s, mapped: %v", text, err)
			}
		}
	})

	t.Run("the zero address is refused", func(t *testing.T) {
		t.Parallel()
		everything := egress.Policy{AllowedNetworks: networks("0.0.0.0/0", "::/0")}
		if err := everything.CheckAddr(netip.Addr{}); !errors.Is(err, egress.ErrBlocked) {
			t.Errorf("got %v", err)
		}
	})

	t.Run("the error names the network and its source", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]string{
			"127.0.0.1":          "loopback (RFC 1122)",
			"::1":                "outside of 2000::/3",
			"169.254.169.254":    "link local, where clouds serve their metadata (RFC 3927)",
			"::ffff:192.168.0.1": "192.168.0.0/16, private use (RFC 1918)",
			"255.255.255.255":    "limited broadcast (RFC 919)",
			"2001::1":            "Teredo (RFC 4380)",
			"2001:2::1":          "IETF protocol assignments (RFC 2928)",
			"8000::1":            "outside of 2000::/3",
			"fe80::1%eth0":       "has a zone",
		} {
			if err := (egress.Policy{}).CheckAddr(netip.MustParseAddr(text)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", text, err, want)
			}
		}
	})
}

func networks(prefixes ...string) (list []netip.Prefix) {
	for _, p := range prefixes {
		list = append(list, netip.MustParsePrefix(p))
	}
	return list
}

func TestAllowedNetworks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		allowed []string
		address string
		blocked bool
	}{
		{"open what is inside", []string{"10.1.0.0/16"}, "10.1.2.3", false},
		{"open it in its mapped form", []string{"10.1.0.0/16"}, "::ffff:10.1.2.3", false},
		{"leave closed what is beside", []string{"10.1.0.0/16"}, "10.2.0.1", true},
		{"open each of several", []string{"10.1.0.0/16", "::1/128"}, "::1", false},
		{"of one address open that one", []string{"127.0.0.1/32"}, "127.0.0.1", false},
		{"of one address leave the next closed", []string{"127.0.0.1/32"}, "127.0.0.2", true},
		{"may be written as mapped IPv4", []string{"::ffff:10.0.0.0/104"}, "10.9.9.9", false},
		{"written as mapped IPv4 leave the rest closed", []string{"::ffff:10.0.0.0/104"}, "127.0.0.1", true},
		{"of all of IPv6 do not open IPv4", []string{"::/0"}, "127.0.0.1", true},
		{"of all of IPv6 do not open mapped IPv4", []string{"::/0"}, "::ffff:127.0.0.1", true},
		{"do not open a zone", []string{"fe80::/10"}, "fe80::1%eth0", true},
		{"open link local without a zone", []string{"fe80::/10"}, "fe80::1", false},
		{"need not have their host bits cleared", []string{"10.1.2.3/8"}, "10.200.0.1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := egress.Policy{AllowedNetworks: networks(c.allowed...)}
			if err := p.CheckAddr(netip.MustParseAddr(c.address)); errors.Is(err, egress.ErrBlocked) != c.blocked {
				t.Errorf("%s: %v", c.address, err)
			}
		})
	}

	t.Run("invalid networks open nothing", func(t *testing.T) {
		t.Parallel()
		p := egress.Policy{AllowedNetworks: []netip.Prefix{{}}}
		for _, text := range blocked {
			if err := p.CheckAddr(netip.MustParseAddr(text)); !errors.Is(err, egress.ErrBlocked) {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
}

func TestDeniedNetworks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		denied, allowed []string
		address         string
		blocked         bool
	}{
		{"close a public address", []string{"198.41.0.0/24"}, nil, "198.41.0.4", true},
		{"leave open the public address beside it", []string{"198.41.0.0/24"}, nil, "198.41.1.4", false},
		{"close it in its mapped form", []string{"198.41.0.4/32"}, nil, "::ffff:198.41.0.4", true},
		{"close a public IPv6 network", []string{"2606:4700::/32"}, nil, "2606:4700::1", true},
		{"win over an allowed network", []string{"10.1.0.0/16"}, []string{"10.0.0.0/8"}, "10.1.2.3", true},
		{"win over a narrower allowed network", []string{"10.0.0.0/8"}, []string{"10.1.2.3/32"}, "10.1.2.3", true},
		{"leave open the rest of an allowed network", []string{"10.1.0.0/16"}, []string{"10.0.0.0/8"}, "10.2.0.1", false},
		{"close their form of NAT64 where that is allowed", []string{"198.41.0.0/24"}, []string{"64:ff9b::/96"}, "64:ff9b::c629:4", true},
		{"leave open another address of NAT64", []string{"198.41.0.0/24"}, []string{"64:ff9b::/96"}, "64:ff9b::808:808", false},
		{"close their form of 6to4 where that is allowed", []string{"198.41.0.0/24"}, []string{"2002::/16"}, "2002:c629:4::1", true},
		{"close their form of Teredo where that is allowed", []string{"198.41.0.0/24"}, []string{"2001::/32"}, "2001:0:1::39d6:fffb", true},
		{"may be written as mapped IPv4", []string{"::ffff:198.41.0.0/120"}, nil, "198.41.0.4", true},
		{"of all of IPv4 close it", []string{"0.0.0.0/0"}, nil, "8.8.8.8", true},
		{"of all of IPv4 leave IPv6 open", []string{"0.0.0.0/0"}, nil, "2606:4700::1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := egress.Policy{DeniedNetworks: networks(c.denied...), AllowedNetworks: networks(c.allowed...)}
			err := p.CheckAddr(netip.MustParseAddr(c.address))
			if errors.Is(err, egress.ErrBlocked) != c.blocked || errors.Is(err, egress.ErrDenied) != c.blocked {
				t.Errorf("%s: %v", c.address, err)
			}
		})
	}

	t.Run("denied networks are not shown to the author of the URL", func(t *testing.T) {
		t.Parallel()
		p := egress.Policy{DeniedNetworks: networks("198.41.0.0/22")}
		_, err := p.CheckURL("https://198.41.0.4/")
		if problem := asURLError(t, err); problem.Code != egress.CodeAddressNotAllowed || strings.Contains(problem.Message, "/22") {
			t.Errorf("%+v", problem)
		}
	})
}

// For every address, there is no panic, and one result for both forms of IPv4. No internal address of the standard
// library is allowed. An exception always wins.
func FuzzCheckAddr(f *testing.F) {
	for _, text := range append(append(append([]string{}, blocked...), zoned...), allowed...) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, _ := netip.ParseAddr(text)
		err := (egress.Policy{}).CheckAddr(a)
		if err != nil && !errors.Is(err, egress.ErrBlocked) {
			t.Fatalf("%s: %v", a, err)
		}
		if !a.IsValid() || a.Zone() != "" {
			if err == nil {
				t.Fatalf("%q is taken", text)
			}
			return
		}
		plain := a.Unmap()
		if err == nil && (!plain.IsGlobalUnicast() || plain.IsPrivate()) {
			t.Fatalf("%s is taken", a)
		}
		if other := (egress.Policy{}).CheckAddr(netip.AddrFrom16(plain.As16())); (other == nil) != (err == nil) {
			t.Fatalf("%s: %v, mapped: %v", a, err, other)
		}
		exception := egress.Policy{AllowedNetworks: []netip.Prefix{netip.PrefixFrom(plain, plain.BitLen())}}
		if err := exception.CheckAddr(a); err != nil {
			t.Fatalf("with an exception: %v", err)
		}
	})
}
