package egress

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// ownAge is how old the list of this machine's addresses may be. Addresses change while the process runs: a lease ends, a
// virtual address moves here. Reading the list takes about 0.1 ms, which every delivery would pay.
const ownMaxAge = 5 * time.Second

// ownCache holds the addresses of this machine. It is one for the process, as the machine is.
var ownCache struct {
	sync.Mutex
	read      time.Time // zero: never
	addresses []netip.Addr
	err       error // of the last reading
}

// OwnAddresses returns the addresses of this machine's network interfaces, at most a few seconds old. If they cannot be
// read, it returns the last ones that could. It cannot know a public address that another machine forwards to this one.
func OwnAddresses() []netip.Addr {
	addresses, _ := readOwn()
	return addresses
}

// CheckOwnAddresses returns an error if the addresses of this machine cannot be read. Connections to its public addresses
// are not refused then, unless the policy denies them.
func CheckOwnAddresses() error {
	_, err := readOwn()
	return err
}

func readOwn() ([]netip.Addr, error) {
	ownCache.Lock()
	defer ownCache.Unlock()
	if !ownCache.read.IsZero() && time.Since(ownCache.read) < ownMaxAge {
		return ownCache.addresses, ownCache.err
	}
	ownCache.read = time.Now()
	list, err := net.InterfaceAddrs()
	if err != nil {
		ownCache.err = fmt.Errorf("list the addresses of this machine: %w", err)
		return ownCache.addresses, ownCache.err
	}
	addresses := make([]netip.Addr, 0, len(list))
	for _, one := range list {
		if network, ok := one.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(network.IP); ok {
				addresses = append(addresses, a.Unmap())
			}
		}
	}
	ownCache.addresses, ownCache.err = addresses, nil // a new list each time: readers keep the one they got
	return addresses, nil
}

// isOwn reports whether a, not mapped, is an address of this machine.
func (p Policy) isOwn(a netip.Addr) bool {
	own := p.Own
	if own == nil {
		own = OwnAddresses
	}
	for _, one := range own() {
		if one.Unmap().WithZone("") == a {
			return true
		}
	}
	return false
}
