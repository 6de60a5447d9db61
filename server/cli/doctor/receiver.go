package doctor

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server/config"
)

// checkReceiver sends one HEAD request to a receiver, over the connection that a delivery would have. Like a delivery, it follows no redirect.
func (r *report) checkReceiver(ctx context.Context, c config.Config, raw string) {
	policy := egress.Policy{AllowHTTP: c.Egress.AllowHTTP, AllowedNetworks: c.Egress.AllowedNetworks, DeniedNetworks: c.Egress.DeniedNetworks}
	address, err := policy.CheckURL(raw)
	if refusal, is := errors.AsType[*egress.URLError](err); is {
		r.problem("url", refusal.Message, "A subscription to this URL is refused (%s).", refusal.Code)
		return
	}
	roots, err := egress.Roots(c.Egress.CAFile)
	if err != nil {
		r.problem("egress", "set egress.ca_file to a file of PEM certificates", "egress.ca_file: %v", err)
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Webhooks.Timeout, errors.New("no response within webhooks.timeout, "+c.Webhooks.Timeout.String()))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, address, nil)
	if err != nil {
		r.failure("url", err)
		return
	}
	transport := egress.NewTransport(egress.Options{Policy: policy, Roots: roots})
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		r.problem("receiver", "check its name, its certificate and the firewall; to allow a private address of your own, set egress.allowed_networks",
			"The receiver cannot be reached: %v", cmp.Or(context.Cause(ctx), err))
		return
	}
	defer resp.Body.Close()
	switch status := resp.StatusCode; {
	case status >= 300 && status < 400:
		r.problem("receiver", "use the final URL for the subscription", "The receiver redirects (%d to %s), but a delivery follows no redirect.", status, resp.Header.Get("Location"))
	case status >= 500:
		r.warning("receiver", "look at the log of the receiver", "The receiver responds to HEAD with %d.", status)
	default:
		r.ok("receiver", "The receiver responds to HEAD with %d. A delivery is a POST request with a signature.", status)
	}
}
