package egress_test

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/dispatch/egress"
)

// longestPath makes a URL of 2,048 characters with https://example.com/.
var longestPath = strings.Repeat("a", 2048-len("https://example.com/"))

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, in, want string // an empty want means unchanged
	}{
		{"a plain URL", "https://example.com/webhooks", ""},
		{"no path", "https://example.com", ""},
		{"a query", "https://example.com/a?b=c&d=%20", ""},
		{"an empty query", "https://example.com/a?", ""},
		{"an escaped slash in the path", "https://example.com/a%2Fb/c", ""},
		{"dots in the path", "https://example.com/a/../b", ""},
		{"at signs and colons in the path", "https://example.com/@a:b/c@d", ""},
		{"a port", "https://example.com:8443/x", ""},
		{"the default port", "https://example.com:443/x", ""},
		{"any port", "https://example.com:22/", ""},
		{"the last port", "https://example.com:65535/", ""},
		{"an upper-case scheme", "HTTPS://example.com/X", "https://example.com/X"},
		{"an upper-case host", "https://EXAMPLE.Com/X?Y=Z", "https://example.com/X?Y=Z"},
		{"a trailing dot", "https://example.com./x", "https://example.com/x"},
		{"a trailing dot before a port", "https://example.com.:8443/x", "https://example.com:8443/x"},
		{"an underscore", "https://my_app.example.com/", ""},
		{"hyphens in third and fourth place", "https://r3---sn-abc.example.com/", ""},
		{"a name of one label", "https://receiver/x", ""},
		{"an international name", "https://Bücher.example/ü?q=é", "https://xn--bcher-kva.example/%C3%BC?q=%C3%A9"},
		{"an international name, percent-encoded", "https://b%C3%BCcher.example/", "https://xn--bcher-kva.example/"},
		{"a punycode name", "https://XN--bcher-kva.example/", "https://xn--bcher-kva.example/"},
		{"full-width letters and dots", "https://ｅｘａｍｐｌｅ。com/", "https://example.com/"},
		{"a public address", "https://1.1.1.1/x", ""},
		{"a public address with a trailing dot", "https://1.1.1.1./x", "https://1.1.1.1/x"},
		{"a public IPv6 address", "https://[2606:4700:4700:0:0:0:0:1111]:8443/x", "https://[2606:4700:4700::1111]:8443/x"},
		{"a mapped public address", "https://[::ffff:8.8.8.8]/x", "https://8.8.8.8/x"},
		{"names that merely begin or end like localhost", "https://localhost.example.com/", ""},
		{"a name that ends in localhost without a dot", "https://notlocalhost/", ""},
		{"2048 characters", "https://example.com/" + longestPath, ""},
	} {
		t.Run("accepts "+c.name, func(t *testing.T) {
			t.Parallel()
			want := c.want
			if want == "" {
				want = c.in
			}
			got, err := (egress.Policy{}).CheckURL(c.in)
			if err != nil || got != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
}

func TestCheckURLRefuses(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name, in, code string
	}{
		{"nothing", "", egress.CodeHTTPSRequired},
		{"http", "http://example.com/", egress.CodeHTTPSRequired},
		{"ftp", "ftp://example.com/", egress.CodeHTTPSRequired},
		{"file", "file:///etc/passwd", egress.CodeHTTPSRequired},
		{"javascript", "javascript:alert(1)", egress.CodeHTTPSRequired},
		{"a URL without a scheme", "example.com/webhooks", egress.CodeHTTPSRequired},
		{"a URL relative to the scheme", "//example.com/", egress.CodeHTTPSRequired},
		{"a scheme that only begins with https", "httpsx://example.com/", egress.CodeHTTPSRequired},
		{"an opaque URL", "https:example.com", egress.CodeHostRequired},
		{"one slash", "https:/example.com", egress.CodeHostRequired},
		{"no host", "https:///webhooks", egress.CodeHostRequired},
		{"a port without a host", "https://:443/", egress.CodeHostRequired},
		{"a user name", "https://user@example.com/", egress.CodeUserinfoNotAllowed},
		{"a user name and a password", "https://user:secret@example.com/", egress.CodeUserinfoNotAllowed},
		{"an empty user name", "https://@example.com/", egress.CodeUserinfoNotAllowed},
		{"a user name that looks like a host", "https://example.com%2f@10.0.0.1/", egress.CodeUserinfoNotAllowed},
		{"a fragment", "https://example.com/#top", egress.CodeFragmentNotAllowed},
		{"an empty fragment", "https://example.com/#", egress.CodeFragmentNotAllowed},
		{"a space in the path", "https://example.com/a b", egress.CodeInvalidURL},
		{"a space in front", " https://example.com/", egress.CodeInvalidURL},
		{"a space at the end", "https://example.com/ ", egress.CodeInvalidURL},
		{"a no-break space", "https://example.com/\u00a0", egress.CodeInvalidURL},
		{"a line break", "https://example.com/\r\nX-Injected: 1", egress.CodeInvalidURL},
		{"a tab", "https://exam\tple.com/", egress.CodeInvalidURL},
		{"a NUL", "https://example.com/\x00", egress.CodeInvalidURL},
		{"a C1 control character", "https://example.com/\u0085", egress.CodeInvalidURL},
		{"invalid UTF-8", "https://example.com/\xff", egress.CodeInvalidURL},
		{"a backslash in the host", `https://example.com\@10.0.0.1/`, egress.CodeInvalidURL},
		{"a backslash in the path", `https://example.com/a\b`, egress.CodeInvalidURL},
		{"a broken escape", "https://example.com/%zz", egress.CodeInvalidURL},
		{"an escaped slash in the host", "https://example.com%2f.evil.test/", egress.CodeInvalidURL},
		{"an escaped digit in the host", "https://%31%32%37.0.0.1/", egress.CodeInvalidURL},
		{"an escaped byte of no character in the host", "https://%ff.example/", egress.CodeInvalidHost},
		{"a replacement character in the host", "https://\ufffd.example/", egress.CodeInvalidHost},
		{"a bracket that does not close", "https://[::1/", egress.CodeInvalidURL},
		{"a name in brackets", "https://[example.com]/", egress.CodeInvalidURL},
		{"a quote in the host", `https://exa"mple.com/`, egress.CodeInvalidHost},
		{"two dots in the host", "https://example..com/", egress.CodeInvalidHost},
		{"a dot in front of the host", "https://.example.com/", egress.CodeInvalidHost},
		{"two trailing dots", "https://example.com../", egress.CodeInvalidHost},
		{"a dot alone", "https://./", egress.CodeInvalidHost},
		{"a hyphen in front", "https://-example.com/", egress.CodeInvalidHost},
		{"a label of 64 characters", "https://" + strings.Repeat("a", 64) + ".com/", egress.CodeInvalidHost},
		{"a host of 254 characters", "https://" + strings.Repeat("a.", 126) + "aa/", egress.CodeInvalidHost},
		{"broken punycode", "https://xn--a/", egress.CodeInvalidHost},
		{"an address of two numbers", "https://127.1/", egress.CodeInvalidHost},
		{"an address of one number", "https://2130706433/", egress.CodeInvalidHost},
		{"an address in hexadecimal", "https://0x7f000001/", egress.CodeInvalidHost},
		{"an address that ends in hexadecimal", "https://127.0.0.0X1/", egress.CodeInvalidHost},
		{"an address in octal", "https://0177.0.0.1/", egress.CodeInvalidHost},
		{"an address of five numbers", "https://1.2.3.4.5/", egress.CodeInvalidHost},
		{"an address with a number too large", "https://1.2.3.256/", egress.CodeInvalidHost},
		{"port 0", "https://example.com:0/", egress.CodeInvalidPort},
		{"port 65536", "https://example.com:65536/", egress.CodeInvalidPort},
		{"port 99999", "https://example.com:99999/", egress.CodeInvalidPort},
		{"port 0443", "https://example.com:0443/", egress.CodeInvalidPort},
		{"an empty port", "https://example.com:/", egress.CodeInvalidPort},
		{"an empty port of an IPv6 address", "https://[2606:4700::1]:/", egress.CodeInvalidPort},
		{"a port that is no number", "https://example.com:https/", egress.CodeInvalidURL},
		{"localhost", "https://localhost/", egress.CodeAddressNotAllowed},
		{"localhost with a trailing dot", "https://LocalHost.:8080/", egress.CodeAddressNotAllowed},
		{"a name under localhost", "https://app.localhost/", egress.CodeAddressNotAllowed},
		{"an address in digits of another script", "https://①②⑦.⓪.⓪.①/", egress.CodeAddressNotAllowed},
		{"an address with a full-width dot", "https://127.0.0。1/", egress.CodeAddressNotAllowed},
		{"a zone", "https://[fe80::1%25lo]/", egress.CodeAddressNotAllowed},
		{"a zone on a public address", "https://[2606:4700::1%25lo]/", egress.CodeAddressNotAllowed},
		{"2049 characters", "https://example.com/" + longestPath + "a", egress.CodeTooLong},
		{"a million characters", "https://example.com/" + strings.Repeat("\x00", 1<<20), egress.CodeTooLong},
		{"2048 characters that grow when encoded", "https://example.com/" + strings.Repeat("ü", 2000), egress.CodeTooLong},
	} {
		t.Run("refuses "+c.name, func(t *testing.T) {
			t.Parallel()
			got, err := (egress.Policy{}).CheckURL(c.in)
			problem := asURLError(t, err)
			if problem.Code != c.code || got != "" {
				t.Errorf("got %q and %v, want %s", got, err, c.code)
			}
			if strings.Contains(problem.Message, "secret") || !strings.HasSuffix(problem.Message, ".") {
				t.Errorf("message: %s", problem.Message)
			}
		})
	}

	t.Run("a blocked address is refused in every spelling, with the reason", func(t *testing.T) {
		t.Parallel()
		for _, text := range append(append([]string{}, blocked...), zoned...) {
			for _, u := range spellings(text) {
				_, err := (egress.Policy{}).CheckURL(u)
				if problem := asURLError(t, err); problem.Code != egress.CodeAddressNotAllowed || !strings.Contains(problem.Message, " (RFC") && !strings.Contains(problem.Message, "Azure") && !strings.Contains(problem.Message, "zone") {
					t.Errorf("%s: %v", u, err)
				}
			}
		}
	})

	t.Run("an allowed address is accepted in every spelling", func(t *testing.T) {
		t.Parallel()
		for _, text := range allowed {
			for _, u := range spellings(text) {
				if _, err := (egress.Policy{}).CheckURL(u); err != nil {
					t.Errorf("%s: %v", u, err)
				}
			}
		}
	})
}

// spellings returns URLs with an address as their host.
func spellings(address string) []string {
	if !strings.Contains(address, ":") {
		return []string{"https://" + address + "/", "https://" + address + ".:8443/", "https://[::ffff:" + address + "]/"}
	}
	return []string{"https://[" + strings.ReplaceAll(address, "%", "%25") + "]:8443/"}
}

func asURLError(t *testing.T, err error) *egress.URLError {
	t.Helper()
	problem, ok := errors.AsType[*egress.URLError](err)
	if !ok {
		t.Fatalf("%v is no URLError", err)
	}
	return problem
}

func TestCheckURLByPolicy(t *testing.T) {
	t.Parallel()
	development := egress.Policy{AllowHTTP: true, AllowedNetworks: networks("127.0.0.0/8", "::1/128")}

	t.Run("http is accepted if it is allowed", func(t *testing.T) {
		t.Parallel()
		if got, err := development.CheckURL("HTTP://example.com/x"); err != nil || got != "http://example.com/x" {
			t.Errorf("got %q, %v", got, err)
		}
		_, err := development.CheckURL("ftp://example.com/x")
		if asURLError(t, err).Code != egress.CodeHTTPSRequired {
			t.Errorf("ftp: %v", err)
		}
	})

	t.Run("loopback addresses and localhost are accepted if they are allowed", func(t *testing.T) {
		t.Parallel()
		for _, u := range []string{"http://127.0.0.1:9000/x", "http://[::1]:9000/x", "http://localhost:9000/x", "http://app.localhost/x"} {
			if got, err := development.CheckURL(u); err != nil || got != u {
				t.Errorf("%s: got %q, %v", u, got, err)
			}
		}
	})

	t.Run("localhost is accepted if one of its addresses is allowed", func(t *testing.T) {
		t.Parallel()
		for _, network := range []string{"127.0.0.1/32", "::1/128"} {
			if _, err := (egress.Policy{AllowedNetworks: networks(network)}).CheckURL("https://localhost/"); err != nil {
				t.Errorf("with %s: %v", network, err)
			}
		}
	})
}

// Every accepted URL becomes canonical and keeps its meaning, and net/http connects only to the host that was checked.
func FuzzCheckURL(f *testing.F) {
	for _, seed := range []string{
		"https://example.com/a?b#c", "https://user@example.com:0443/", "https://[::ffff:8.8.8.8]:1/", "https://①②⑦.⓪.⓪.①/",
		"https://[fe80::1%25lo]/", "https://xn--bcher-kva.example./%2F?ü", "HTTPS://EXAMPLE.COM:443", "https://a..b/", "https://127.1/",
		"http://localhost:9000/x", "https://a.b。c/\\", "https://%C3%BC/", "https://ẞ.example/ẞ", "https://[::1]", "https:////", "https://x?%zz",
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, raw string, open bool) {
		p := egress.Policy{AllowHTTP: open}
		if open {
			p.AllowedNetworks = networks("0.0.0.0/0", "::/0")
		}
		canonical, err := p.CheckURL(raw)
		if err != nil {
			if problem := asURLError(t, err); problem.Code == "" || problem.Message == "" || canonical != "" {
				t.Fatalf("%q: %q, %+v", raw, canonical, problem)
			}
			return
		}
		if again, err := p.CheckURL(canonical); err != nil || again != canonical {
			t.Fatalf("%q gives %q, and that %q, %v", raw, canonical, again, err)
		}
		u, err := url.Parse(canonical)
		switch {
		case err != nil:
			t.Fatalf("%q: %v", canonical, err)
		case u.Scheme != "https" && !(open && u.Scheme == "http"):
			t.Fatalf("%q has the scheme %s", canonical, u.Scheme)
		case u.Host == "" || u.User != nil || u.Opaque != "" || u.Fragment != "" || strings.HasSuffix(u.Hostname(), "."):
			t.Fatalf("%q has parts that it should not: %#v", canonical, u)
		case len(canonical) > egress.MaxURL:
			t.Fatalf("%d bytes are accepted", len(canonical))
		}
		if a, err := netip.ParseAddr(u.Hostname()); err == nil && p.CheckAddr(a) != nil {
			t.Fatalf("%q names a refused address", canonical)
		}
		for i := range len(canonical) {
			if c := canonical[i]; c <= ' ' || c > '~' || c == '\\' {
				t.Fatalf("%q holds %q", canonical, c)
			}
		}
	})
}
