package egress_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/dispatch/egress"
)

// onMachineWith returns the policy of a machine with these addresses.
func onMachineWith(p egress.Policy, own ...netip.Addr) egress.Policy {
	return p.OnMachine(func() (list []net.Addr, err error) {
		for _, a := range own {
			list = append(list, &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(24, a.BitLen())})
		}
		return list, nil
	})
}

// embeddings returns the IPv6 addresses that lead to an IPv4 address, in the order of their networks.
func embeddings(a netip.Addr) []netip.Addr {
	v4 := a.As4()
	number := binary.BigEndian.Uint32(v4[:])
	last := func(network string) netip.Addr {
		b := netip.MustParseAddr(network).As16()
		binary.BigEndian.PutUint32(b[12:], number)
		return netip.AddrFrom16(b)
	}
	sixToFour := netip.MustParseAddr("2002::1").As16()
	binary.BigEndian.PutUint32(sixToFour[2:], number)
	teredo := netip.MustParseAddr("2001:0:808:808::").As16()
	binary.BigEndian.PutUint32(teredo[12:], ^number)
	return []netip.Addr{
		last("::ffff:0:0"), last("::"), last("::ffff:0:0:0"), last("64:ff9b::"), last("64:ff9b:1::"),
		netip.AddrFrom16(sixToFour), netip.AddrFrom16(teredo),
	}
}

// embeddingNetworks are the networks of embeddings, without the mapped form.
var embeddingNetworks = networks("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")

func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	one := netip.MustParseAddr("198.41.0.4")
	six := netip.MustParseAddr("2606:4700::1111")

	t.Run("own addresses are refused, and their neighbours are not", func(t *testing.T) {
		t.Parallel()
		p := onMachineWith(egress.Policy{}, one, six)
		for _, a := range []netip.Addr{one, six} {
			if err := p.CheckAddr(a); !errors.Is(err, egress.ErrBlocked) || errors.Is(err, egress.ErrDenied) || !strings.Contains(err.Error(), "this machine") {
				t.Errorf("%s: %v", a, err)
			}
			if err := p.CheckAddr(a.Next()); err != nil {
				t.Error(err)
			}
		}
	})

	t.Run("own addresses are refused in URLs, with the reason", func(t *testing.T) {
		t.Parallel()
		for _, u := range spellings(one.String()) {
			_, err := onMachineWith(egress.Policy{}, one).CheckURL(u)
			if problem := asURLError(t, err); problem.Code != egress.CodeAddressNotAllowed || !strings.Contains(problem.Message, "an address of this machine") {
				t.Errorf("%s: %+v", u, problem)
			}
		}
	})

	t.Run("own addresses inside an allowed network are accepted", func(t *testing.T) {
		t.Parallel()
		if err := onMachineWith(egress.Policy{AllowedNetworks: networks("198.41.0.0/24")}, one).CheckAddr(one); err != nil {
			t.Error(err)
		}
	})

	t.Run("own addresses may be listed with a zone or mapped", func(t *testing.T) {
		t.Parallel()
		p := onMachineWith(egress.Policy{}, netip.AddrFrom16(one.As16()), six.WithZone("eth0"))
		for _, a := range []netip.Addr{one, six} {
			if err := p.CheckAddr(a); !errors.Is(err, egress.ErrBlocked) {
				t.Errorf("%s: %v", a, err)
			}
		}
	})

	t.Run("own addresses are refused in every embedding, even if its network is allowed", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			own := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "own")))
			other := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "other")))
			for _, p := range []egress.Policy{onMachineWith(egress.Policy{}, own), onMachineWith(egress.Policy{AllowedNetworks: embeddingNetworks}, own)} {
				for _, a := range append(embeddings(own), own) {
					if err := p.CheckAddr(a); !errors.Is(err, egress.ErrBlocked) {
						t.Fatalf("%s is %s: %v", a, own, err)
					}
				}
			}
			for _, a := range embeddings(other)[1:] { // the purpose of the exception stays open
				if err := onMachineWith(egress.Policy{AllowedNetworks: embeddingNetworks}, own).CheckAddr(a); err != nil && other != own {
					t.Fatalf("%s: %v", a, err)
				}
			}
		})
	})
}

// By default, the policy refuses connections to the addresses of this machine's interfaces.
func TestInterfaces(t *testing.T) {
	t.Parallel()
	if err := egress.CheckOwnAddresses(); err != nil {
		t.Fatal(err)
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[netip.Addr]bool{}
	for _, a := range egress.OwnAddresses() {
		listed[a] = true
	}
	for _, one := range all {
		a := netip.MustParsePrefix(one.String()).Addr()
		if !listed[a] {
			t.Errorf("%s is not listed", a)
		}
		if err := (egress.Policy{}).CheckAddr(a); !errors.Is(err, egress.ErrBlocked) {
			t.Errorf("%s: %v", a, err)
		}
	}
}

// A machine may get another address, and the list of its addresses may become unreadable for a time.
func TestOwnAddressesAreReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now, failure := netip.MustParsePrefix("198.41.0.4/24"), error(nil)
		own := egress.OwnAddressesOf(func() ([]net.Addr, error) {
			return []net.Addr{&net.IPNet{IP: now.Addr().AsSlice(), Mask: net.CIDRMask(24, 32)}}, failure
		})
		check := func(want string, fails bool) {
			t.Helper()
			time.Sleep(5 * time.Second)
			if got, err := own(); len(got) != 1 || got[0].String() != want || (err != nil) != fails {
				t.Errorf("the addresses are %v, error %v, want %s", got, err, want)
			}
		}
		check("198.41.0.4", false)
		now = netip.MustParsePrefix("198.41.0.5/24")
		check("198.41.0.5", false)
		failure = errors.New("no")
		check("198.41.0.5", true)
		failure = nil
		check("198.41.0.5", false)
	})
}

// Every dial reads the addresses again, because they change while the process runs.
func TestOwnAddressesAreAskedForAtTheDial(t *testing.T) {
	t.Parallel()
	var own []net.Addr
	interfaces := func() ([]net.Addr, error) { return own, nil }
	policy := egress.Policy{AllowedNetworks: networks("64:ff9b::/96")}.OnMachine(interfaces)
	tr := egress.NewTransport(egress.Options{Policy: policy})
	own = []net.Addr{&net.IPNet{IP: net.IPv4(198, 41, 0, 4), Mask: net.CIDRMask(24, 32)}}
	checkRefused(t, tr, "http://[64:ff9b::c629:4]:9/")
	checkRefused(t, tr, "http://198.41.0.4:9/")
}

func BenchmarkCheckAddr(b *testing.B) {
	a := netip.MustParseAddr("198.41.0.4")
	for b.Loop() {
		if err := (egress.Policy{}).CheckAddr(a); err != nil {
			b.Fatal(err)
		}
	}
}
