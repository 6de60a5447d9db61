package server_test

import (
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Traefik and Envoy have no package that the tests could install. So the tests speak their protocols, as their documents describe them,
// with the settings of our examples:
// https://doc.traefik.io/traefik/middlewares/http/forwardauth/ and
// https://www.envoyproxy.io/docs/envoy/latest/api-v3/extensions/filters/http/ext_authz/v3/ext_authz.proto

// asking is a proxy that asks before it passes on a request.
type asking struct {
	question  func(r *http.Request) (*http.Request, error) // the question about a request
	upstream  []string                                     // headers that the answer sets in the request that is passed on
	removed   []string                                     // headers that the request loses
	fiveIsBad bool                                         // a 5xx is a failure of the service, not an answer
	failed    int                                          // the status if the service cannot be reached
	target    *url.URL
}

// ServeHTTP asks, and passes on a request that is allowed.
func (p *asking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	dropHopByHop(r.Header)
	ask, err := p.question(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer, err := http.DefaultTransport.RoundTrip(ask)
	if err != nil {
		w.WriteHeader(p.failed)
		return
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode >= 500 && p.fiveIsBad:
		w.WriteHeader(p.failed)
		return
	case answer.StatusCode < 200 || answer.StatusCode > 299:
		maps.Copy(w.Header(), answer.Header)
		dropHopByHop(w.Header())
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
		return
	}
	for _, name := range p.upstream {
		r.Header.Del(name)
		if values := answer.Header.Values(name); len(values) > 0 {
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	for _, name := range p.removed {
		r.Header.Del(name)
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = p.target.Scheme, p.target.Host, ""
	passed, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer passed.Body.Close()
	maps.Copy(w.Header(), passed.Header)
	w.WriteHeader(passed.StatusCode)
	_, _ = io.Copy(w, passed.Body)
}

// dropHopByHop removes the headers of one connection, but not those that Connection names: our examples remove Connection before.
func dropHopByHop(h http.Header) {
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"} {
		h.Del(name)
	}
}

// startAsking starts a proxy of this test.
func startAsking(t *testing.T, p *asking) *listener {
	t.Helper()
	l := &listener{api: newUpstream(t)}
	p.target, _ = url.Parse(l.api.URL)
	proxy := httptest.NewServer(p)
	t.Cleanup(proxy.Close)
	l.url = proxy.URL
	return l
}

// example reads one of the YAML examples, with the address of Keyhook.
func example(t *testing.T, number int, keyhook string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(replace(t, snippets(t, "yaml")[number], "127.0.0.1:8080", keyhook)), into); err != nil {
		t.Fatal(err)
	}
}

// startTraefik speaks forwardAuth: a GET without a body, with all headers of the client, and X-Forwarded-* about the request. The headers
// of authResponseHeaders replace those of the client. An empty custom header removes one.
func startTraefik(t *testing.T, keyhook string) *listener {
	t.Helper()
	var settings struct {
		HTTP struct {
			Routers     map[string]struct{ Middlewares []string }
			Middlewares map[string]struct {
				Headers     struct{ CustomRequestHeaders map[string]string } `yaml:"headers"`
				ForwardAuth struct {
					Address             string
					AuthResponseHeaders []string `yaml:"authResponseHeaders"`
				} `yaml:"forwardAuth"`
			}
		}
	}
	example(t, 0, keyhook, &settings)
	if order := settings.HTTP.Routers["api"].Middlewares; !slices.Equal(order, []string{"no-connection", "keyhook", "no-credential"}) {
		t.Errorf("middlewares %v", order)
	}
	auth := settings.HTTP.Middlewares["keyhook"].ForwardAuth
	return startAsking(t, &asking{
		question: func(r *http.Request) (*http.Request, error) {
			ask, err := http.NewRequestWithContext(r.Context(), http.MethodGet, auth.Address, nil)
			if err != nil {
				return nil, err
			}
			ask.Header = r.Header.Clone()
			ask.Header.Del("Content-Length")
			from, _, _ := net.SplitHostPort(r.RemoteAddr)
			for name, value := range map[string]string{
				"Method": r.Method, "Proto": "http", "Host": r.Host, "Uri": r.URL.RequestURI(), "For": from,
			} {
				ask.Header.Set("X-Forwarded-"+name, value)
			}
			return ask, nil
		},
		upstream: auth.AuthResponseHeaders, removed: []string{"Authorization"}, failed: http.StatusInternalServerError,
	})
}

// envoyExample is what the test reads of the example for Envoy.
type envoyExample struct {
	Filters []struct {
		Config struct {
			FailureModeAllow bool                  `yaml:"failure_mode_allow"`
			StatusOnError    struct{ Code string } `yaml:"status_on_error"`
			AllowedHeaders   envoyMatchers         `yaml:"allowed_headers"`
			Service          struct {
				Server struct {
					URI string
				} `yaml:"server_uri"`
				PathPrefix string `yaml:"path_prefix"`
				Response   struct {
					Upstream envoyMatchers `yaml:"allowed_upstream_headers"`
				} `yaml:"authorization_response"`
			} `yaml:"http_service"`
		} `yaml:"typed_config"`
	} `yaml:"http_filters"`
	Route struct {
		Removed []string `yaml:"request_headers_to_remove"`
	} `yaml:"route_config"`
}

type envoyMatchers struct{ Patterns []struct{ Exact string } }

func (m envoyMatchers) names() (names []string) {
	for _, p := range m.Patterns {
		names = append(names, p.Exact)
	}
	return names
}

// startEnvoy speaks ext_authz over HTTP: the method of the client, path_prefix before its path with the query, Host, Content-Length 0,
// Authorization and the allowed headers, without a body. The service allows a request with 200. A 5xx is a failure of the service.
// As the document asks, headers with underscores are dropped.
func startEnvoy(t *testing.T, keyhook string) *listener {
	t.Helper()
	var settings envoyExample
	example(t, 1, keyhook, &settings)
	filter := settings.Filters[0].Config
	if filter.FailureModeAllow || filter.StatusOnError.Code != "ServiceUnavailable" {
		t.Errorf("filter %+v", filter)
	}
	return startAsking(t, &asking{
		question: func(r *http.Request) (*http.Request, error) {
			maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return strings.Contains(name, "_") })
			from, _, _ := net.SplitHostPort(r.RemoteAddr)
			r.Header.Set("X-Forwarded-For", from) // use_remote_address
			ask, err := http.NewRequestWithContext(r.Context(), r.Method, filter.Service.Server.URI+filter.Service.PathPrefix+r.URL.RequestURI(), nil)
			if err != nil {
				return nil, err
			}
			ask.Host = r.Host
			for _, name := range append(filter.AllowedHeaders.names(), "authorization") {
				if values := r.Header.Values(name); len(values) > 0 {
					ask.Header[http.CanonicalHeaderKey(name)] = values
				}
			}
			return ask, nil
		},
		upstream: filter.Service.Response.Upstream.names(), removed: settings.Route.Removed, fiveIsBad: true, failed: http.StatusServiceUnavailable,
	})
}
