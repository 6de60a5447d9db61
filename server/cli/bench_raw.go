package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/dispatch/signature"
)

// rawAtOnce is how many requests are under way at once: more make it no faster.
const rawAtOnce = 64

// measureRaw sends what Keyhook would send, signed and through the same transport, and keeps nothing: no store, no queue,
// no publisher. What Keyhook delivers is compared with that.
func (b *bench) measureRaw(ctx context.Context) error {
	rate, err := b.sendRaw(ctx, 2*b.events)
	if err != nil {
		return err
	}
	b.raw = rate
	b.add(measurement{name: "raw", title: "signed POSTs, without Keyhook", value: rate, unit: "1/s"})
	return nil
}

// besideRaw runs something between two more measurements of that: a machine that others share is not as quick at one
// moment as at another, and what is compared has to be of the same moments.
func (b *bench) besideRaw(ctx context.Context, run func() (flowed, error)) (done flowed, err error) {
	before, err := b.sendRaw(ctx, b.events/2)
	if err != nil {
		return done, err
	}
	if done, err = run(); err != nil {
		return done, err
	}
	after, err := b.sendRaw(ctx, b.events/2)
	b.raw = (before + after) / 2
	return done, err
}

// sendRaw makes n deliveries without Keyhook, and returns how many a second that were.
func (b *bench) sendRaw(ctx context.Context, n int) (float64, error) {
	n = max(n, rawAtOnce)
	r, err := newRawSender(b.counterpart.Endpoints[0]+pathTake+"raw", deliveredText("bench.one", b.body))
	if err != nil {
		return 0, err
	}
	transport := egress.NewTransport(egress.Options{
		Policy:  egress.Policy{AllowHTTP: b.defaults.Egress.AllowHTTP, AllowedNetworks: b.defaults.Egress.AllowedNetworks},
		MaxIdle: b.defaults.Webhooks.Concurrency, MaxIdlePerHost: b.defaults.Webhooks.Concurrency,
	})
	defer transport.CloseIdleConnections()
	var left atomic.Int64
	left.Store(int64(n))
	began := time.Now()
	all, sending := errgroup.WithContext(ctx)
	for range rawAtOnce {
		all.Go(func() error {
			for left.Add(-1) >= 0 {
				if err := r.send(sending, transport); err != nil {
					return orCause(sending, err)
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return 0, err
	}
	rate := float64(n) / time.Since(began).Seconds()
	_, err = b.received(ctx, "raw", n)
	return rate, err
}

// rawSender makes deliveries as Keyhook does, all of one body.
type rawSender struct {
	url      *url.URL
	body     []byte
	hex      *signature.Signer
	standard *signature.StandardSigner
}

func newRawSender(address, body string) (r rawSender, err error) {
	const secret = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	r.body = []byte(body)
	if r.url, err = url.Parse(address); err != nil {
		return r, err
	}
	if r.hex, err = signature.NewSigner(secret); err != nil {
		return r, err
	}
	r.standard, err = signature.NewStandardSigner(secret)
	return r, err
}

// send makes one delivery, with the headers and both signatures of a real one, computed afresh.
func (r rawSender) send(ctx context.Context, transport http.RoundTripper) error {
	const id = "evt_00000000000000000000000000"
	now := time.Now().Unix()
	timestamp := []string{strconv.FormatInt(now, 10)}
	event := []string{id}
	req := (&http.Request{
		Method: http.MethodPost, URL: r.url, Host: r.url.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type":        {"application/json"},
			"User-Agent":          {"Keyhook/1 (webhooks)"},
			"X-Service-Signature": {string(r.hex.AppendHex(nil, now, r.body))},
			"X-Service-Timestamp": timestamp, "Webhook-Timestamp": timestamp,
			"X-Service-Event-Id": event, "Webhook-Id": event,
			"X-Service-Event-Type": {"bench.one"},
			"X-Service-Attempt":    {"1"},
			"Webhook-Signature":    {string(r.standard.Append(nil, id, now, r.body))},
		},
		ContentLength: int64(len(r.body)),
		Body:          io.NopCloser(bytes.NewReader(r.body)),
		GetBody:       func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.body)), nil },
	}).WithContext(ctx)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the receiver answered %d", resp.StatusCode)
	}
	return nil
}
