package receive

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/keyhook/keyhook/server/cli/output"
)

const (
	forwardTimeout = 30 * time.Second // longer than a sender waits
	maxResponse    = 1 << 20          // bytes of a response that go back
)

// forwarding connects for --forward. It uses no proxy.
var forwarding = &http.Transport{}

// proxyHeaders are headers that httputil.ReverseProxy removes. The program must get the same headers as the receiver.
var proxyHeaders = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// forward sends a delivery to a program with the same bytes and headers, and returns the program's response to the sender.
// Without a response, it responds with 502. It returns the status, and a note about the response.
func forward(w http.ResponseWriter, r *http.Request, to *url.URL, body []byte) (status int, note string) {
	ctx, cancel := context.WithTimeout(r.Context(), forwardTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	proxy := httputil.ReverseProxy{
		Transport: forwarding,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = to, to.Host
			for _, name := range proxyHeaders {
				if values, present := p.In.Header[name]; present {
					p.Out.Header[name] = values
				}
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			defer resp.Body.Close()
			text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
			resp.Body = io.NopCloser(bytes.NewReader(text))
			resp.Header.Del("Content-Length") // the text may be cut; net/http counts it again
			status, note = resp.StatusCode, "from "+to.String()
			if text := output.Shorten(string(bytes.TrimSpace(text)), 200); text != "" {
				note += ": " + text
			}
			return err
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			status, note = http.StatusBadGateway, fmt.Sprintf("the delivery could not be forwarded: %v", err)
			w.WriteHeader(status)
		},
	}
	proxy.ServeHTTP(w, r)
	return status, note
}
