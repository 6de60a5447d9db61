package egress

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// ownMaxAge is how old the list of this machine's addresses may be. Addresses change while the process runs: a lease
// ends, or a virtual address moves here. Reading the list takes about 0.1 ms, too much for every delivery.
const ownMaxAge = 5 * time.Second

type ownList struct {
	interfaces func() ([]net.Addr, error)
	sync.Mutex
	read      time.Time // zero: never
	addresses []netip.Addr
	err       error // of the last read
}

// own is the list of this machine. It cannot have a public address that another machine forwards to this one.
var own = ownList{interfaces: net.InterfaceAddrs}

// CheckOwnAddresses returns an error if the addresses of this machine cannot be read. Then connections to its public
// addresses are not refused, unless the policy denies them.
func CheckOwnAddresses() error {
	_, err := own.get()
	return err
}

// get returns the addresses. If they cannot be read, it returns the last known ones and an error.
func (l *ownList) get() ([]netip.Addr, error) {
	l.Lock()
	defer l.Unlock()
	if !l.read.IsZero() && time.Since(l.read) < ownMaxAge {
		return l.addresses, l.err
	}
	l.read = time.Now()
	list, err := l.interfaces()
	if err != nil {
		l.err = fmt.Errorf("cannot list the addresses of this machine: %w", err)
		return l.addresses, l.err
	}
	addresses := make([]netip.Addr, 0, len(list))
	for _, one := range list {
		if network, ok := one.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(network.IP); ok {
				addresses = append(addresses, a.Unmap())
			}
		}
	}
	l.addresses, l.err = addresses, nil // always a new list, because callers keep the one they got
	return addresses, nil
}

// isOwn reports whether a is an address of this machine. The caller has unmapped a.
func (p Policy) isOwn(a netip.Addr) bool {
	addresses, _ := cmp.Or(p.own, &own).get()
	return slices.Contains(addresses, a)
}
