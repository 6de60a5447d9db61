package egress_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer is a DNS server in this process. Its answers change with each query of a name and type; the last one
// stays. A name that begins with an alias gets a CNAME and the addresses of its target.
type nameServer struct {
	tb testing.TB

	mu      sync.Mutex
	answers map[string][][]netip.Addr
	aliases map[string]string
}

func newZone(tb testing.TB) *nameServer {
	return &nameServer{tb: tb, answers: map[string][][]netip.Addr{}, aliases: map[string]string{}}
}

// add sets the answers of a name, one for each query.
func (z *nameServer) add(name string, answers ...[]string) {
	for _, texts := range answers {
		var addresses []netip.Addr
		for _, text := range texts {
			addresses = append(addresses, netip.MustParseAddr(text))
		}
		z.answers[name+"."] = append(z.answers[name+"."], addresses)
	}
}

// resolver queries the server over pipes, with the framing of DNS over TCP.
func (z *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go z.serve(server) // ends when the resolver closes its end
		return client, nil
	}}
}

func (z *nameServer) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		answer, err := z.answer(query)
		if err != nil {
			z.tb.Errorf("name server: %v", err)
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

func (z *nameServer) answer(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Header.Response, m.Header.RecursionAvailable, m.Additionals = true, true, nil
	q := m.Questions[0]
	name := strings.ToLower(q.Name.String())
	if to, ok := z.aliases[name]; ok {
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
			Body:   &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(to)},
		})
		name = to
	}
	addresses, known := z.next(name, q.Type)
	if !known {
		m.Header.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addresses {
		r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: q.Class}}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			r.Body = &dnsmessage.AResource{A: a.As4()}
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			r.Body = &dnsmessage.AAAAResource{AAAA: a.As16()}
		default:
			continue
		}
		m.Answers = append(m.Answers, r)
	}
	return m.Pack()
}

// next returns the next answer. Only queries for A move on, because every lookup makes exactly one.
func (z *nameServer) next(name string, of dnsmessage.Type) ([]netip.Addr, bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	list, known := z.answers[name]
	if !known {
		return nil, false
	}
	if of == dnsmessage.TypeA && len(list) > 1 {
		z.answers[name] = list[1:]
	}
	return list[0], true
}
