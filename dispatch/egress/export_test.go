package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"syscall"
)

// OwnAddresses returns the addresses of this machine.
func OwnAddresses() []netip.Addr {
	addresses, _ := own.get()
	return addresses
}

// OnMachine returns the policy on a machine with these interfaces.
func (p Policy) OnMachine(interfaces func() ([]net.Addr, error)) Policy {
	p.own = &ownList{interfaces: interfaces}
	return p
}

// OwnAddressesOf returns the addresses of a machine with these interfaces, with its own list.
func OwnAddressesOf(interfaces func() ([]net.Addr, error)) func() ([]netip.Addr, error) {
	return (&ownList{interfaces: interfaces}).get
}

var errNoted = errors.New("noted, and not dialled")

// NotingTransport is NewTransport, but it connects to nothing. It notes each address that the policy lets through.
func NotingTransport(o Options, note func(address string)) *http.Transport {
	transport, dialer := NewTransport(o), o.dialer()
	check := dialer.ControlContext
	dialer.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		if check != nil {
			if err := check(ctx, network, address, c); err != nil {
				return err
			}
		}
		note(address)
		return errNoted
	}
	transport.DialContext = dialer.DialContext
	return transport
}
