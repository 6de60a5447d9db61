package alert

import (
	"context"
	"net"
)

// Intercept makes all channels call send in place of their services. channel is the name, such as "ntfy 1".
func (a *Alerter) Intercept(send func(channel, title, body string) error) {
	for _, w := range a.workers {
		w.sendNow = func(title, body string) error { return send(w.String(), title, body) }
	}
}

// Send sends a message and returns the error of the library, and the text that people see of it.
func (c Channel) Send(title, body string) (text string, err error) {
	if err = c.send(title, body); err != nil {
		text = c.scrub(err)
	}
	return text, err
}

// DialWith makes all services that share the transport connect with dial. Nothing may be sent at the same time.
func DialWith(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	verified.inner.DialContext = dial
}

// Limits of a message and of a channel.
const (
	MaxBody   = maxBody
	RetryFor  = retryFor
	MaxUntold = maxUntold
)

// Clean makes a text of a customer safe.
func Clean(text string) string { return clean(text, maxName) }
