package egress_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyhook/keyhook/dispatch/egress"
)

// receiver is an HTTP server on one loopback address that counts its connections.
type receiver struct {
	port  string
	conns atomic.Int64
}

// listen starts a receiver on an address and a port; "0" is any port. It skips the test if the machine lacks the
// address.
func listen(t *testing.T, address, port string) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, port))
	if err != nil && os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
		t.Fatalf("this machine cannot listen on %s: %v", address, err)
	}
	if err != nil {
		t.Skipf("this machine cannot listen on %s: %v", address, err) // a failure under KEYHOOK_TEST_REQUIRE
	}
	r := &receiver{port: strconv.Itoa(l.Addr().(*net.TCPAddr).Port)}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Listener.Close()
	s.Listener = l
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			r.conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return r
}

// post makes one request on its own connection.
func post(t *testing.T, tr *http.Transport, url string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// checkRefused asserts that a request to url ends in ErrBlocked, which the client has wrapped.
func checkRefused(t *testing.T, tr *http.Transport, url string) {
	t.Helper()
	if err := post(t, tr, url); !errors.Is(err, egress.ErrBlocked) {
		t.Errorf("%s: %v", url, err)
	}
}

// A guard that is broken would connect this machine to the addresses of the table, so the dialer here connects to nothing.
func TestGuardTable(t *testing.T) {
	t.Parallel()
	z := newZone(t)
	for i, text := range blocked {
		z.add(fmt.Sprintf("host%d.test", i), []string{text})
	}
	var mu sync.Mutex
	var through []string
	tr := egress.NotingTransport(egress.Options{Resolver: z.resolver()}, func(address string) {
		mu.Lock()
		defer mu.Unlock()
		through = append(through, address)
	})

	for i, text := range blocked {
		checkRefused(t, tr, "http://"+net.JoinHostPort(text, "8080")+"/")
		checkRefused(t, tr, fmt.Sprintf("http://host%d.test:8080/", i))
		if netip.MustParseAddr(text).Is4() {
			checkRefused(t, tr, "http://"+net.JoinHostPort("::ffff:"+text, "8080")+"/")
		}
	}
	for _, text := range zoned { // some libraries panic here, in a goroutine that nobody can recover
		checkRefused(t, tr, "http://"+net.JoinHostPort(strings.ReplaceAll(text, "%", "%25"), "8080")+"/")
	}
	if len(through) > 0 {
		t.Errorf("the guard let through %q", through)
	}

	// The transport notes what the guard allows, or the test would prove nothing.
	const public = "192.0.9.1:8080"
	if err := post(t, tr, "http://"+public+"/"); err == nil || !slices.Equal(through, []string{public}) {
		t.Errorf("of a public address it noted %q, error %v", through, err)
	}
}

// The transport of deliveries has the guard that TestGuardTable checks: a receiver on the loopback addresses counts no
// connection.
func TestGuardOfTheTransport(t *testing.T) {
	t.Parallel()
	inside := listen(t, "127.0.0.1", "0")
	inside6 := listen(t, "::1", inside.port)
	tr := egress.NewTransport(egress.Options{Resolver: newZone(t).resolver()})
	for _, address := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"} {
		checkRefused(t, tr, "http://"+net.JoinHostPort(address, inside.port)+"/")
	}
	if n := inside.conns.Load() + inside6.conns.Load(); n != 0 {
		t.Errorf("%d connections reached the inside", n)
	}
}

// In these tests 127.0.0.2 stands for the public internet. The forbidden receiver listens on 127.0.0.1.
func TestGuardNames(t *testing.T) {
	t.Parallel()
	const outside, inside = "127.0.0.2", "127.0.0.1"
	many := slices.Repeat([]string{inside}, 50)

	t.Run("a name that is rebound to an internal address is refused from then on", func(t *testing.T) {
		t.Parallel()
		in := listen(t, inside, "0")
		out := listen(t, outside, in.port)
		z := newZone(t)
		z.add("rebound.test", []string{outside}, []string{outside}, []string{inside})
		tr := egress.NewTransport(egress.Options{Policy: allowOnly(outside), Resolver: z.resolver()})
		for i := range 2 {
			if err := post(t, tr, "http://rebound.test:"+in.port); err != nil {
				t.Errorf("request %d, before: %v", i, err)
			}
		}
		for range 3 {
			checkRefused(t, tr, "http://rebound.test:"+in.port)
		}
		if out.conns.Load() != 2 || in.conns.Load() != 0 {
			t.Errorf("%d connections outside, %d inside", out.conns.Load(), in.conns.Load())
		}
	})

	for name, answer := range map[string][]string{
		"an allowed address that does not answer, then an internal one": {outside, inside},
		"an internal address, then an allowed one":                      {inside, outside},
		"an internal IPv6 address and an allowed IPv4 address":          {"::1", "::ffff:127.0.0.1", outside},
		"fifty times the inside":                                        many,
		"fifty times the inside and an allowed address":                 append(slices.Clone(many), outside),
	} {
		t.Run("a name with "+name+" reaches no internal address", func(t *testing.T) {
			t.Parallel()
			in := listen(t, inside, "0")
			in6 := listen(t, "::1", in.port)
			z := newZone(t)
			z.add("mixed.test", answer)
			tr := egress.NewTransport(egress.Options{Policy: allowOnly(outside), Resolver: z.resolver()})
			for range 3 {
				if err := post(t, tr, "http://mixed.test:"+in.port); err == nil {
					t.Error("the request went through")
				}
			}
			if n := in.conns.Load() + in6.conns.Load(); n != 0 {
				t.Errorf("%d connections inside", n)
			}
		})
	}

	t.Run("aliases of localhost are refused", func(t *testing.T) {
		t.Parallel()
		in := listen(t, inside, "0")
		z := newZone(t)
		z.add("localhost", []string{inside, "::1"})
		z.aliases["alias.test."] = "localhost."
		tr := egress.NewTransport(egress.Options{Resolver: z.resolver()})
		checkRefused(t, tr, "http://alias.test:"+in.port)
		checkRefused(t, tr, "http://localhost:"+in.port)
		if in.conns.Load() != 0 {
			t.Errorf("%d connections inside", in.conns.Load())
		}
	})

	t.Run("a missing name is an error of the lookup, not of the policy", func(t *testing.T) {
		t.Parallel()
		tr := egress.NewTransport(egress.Options{Resolver: newZone(t).resolver()})
		for _, host := range []string{"missing.test", "127.1", "2130706433", "0x7f000001"} {
			err := post(t, tr, "http://"+host+"/")
			if dns, ok := errors.AsType[*net.DNSError](err); !ok || !dns.IsNotFound || errors.Is(err, egress.ErrBlocked) {
				t.Errorf("%s: %v", host, err)
			}
		}
	})

	t.Run("a name with an address in the operator's exceptions is reached", func(t *testing.T) {
		t.Parallel()
		in := listen(t, inside, "0")
		z := newZone(t)
		z.add("private.test", []string{inside})
		tr := egress.NewTransport(egress.Options{Policy: allowOnly(inside), Resolver: z.resolver()})
		if err := post(t, tr, "http://private.test:"+in.port); err != nil {
			t.Error(err)
		}
		if in.conns.Load() != 1 {
			t.Errorf("%d connections", in.conns.Load())
		}
	})
}

// allowOnly allows one internal address.
func allowOnly(address string) egress.Policy {
	a := netip.MustParseAddr(address)
	return egress.Policy{AllowedNetworks: []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}}
}

// Not parallel, because it sets the environment, which net/http reads only once in a process.
func TestEnvironmentProxies(t *testing.T) {
	proxy := listen(t, "127.0.0.1", "0")
	target := listen(t, "127.0.0.2", "0")
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, "http://127.0.0.1:"+proxy.port)
	}
	t.Setenv("NO_PROXY", "")
	z := newZone(t)
	z.add("receiver.test", []string{"127.0.0.2"})
	everything := egress.Policy{AllowedNetworks: networks("127.0.0.0/8")}
	tr := egress.NewTransport(egress.Options{Policy: everything, Resolver: z.resolver()})
	if err := post(t, tr, "http://receiver.test:"+target.port); err != nil {
		t.Error(err)
	}
	if proxy.conns.Load() != 0 || target.conns.Load() != 1 {
		t.Errorf("%d connections to the proxy, %d to the target", proxy.conns.Load(), target.conns.Load())
	}
}
