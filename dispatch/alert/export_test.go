package alert

import (
	"context"
	"errors"
	"net/http"
)

// ErrHangs makes an intercepted send wait until its context ends.
var ErrHangs = errors.New("the service does not answer")

// Intercept makes all channels call send in place of their services. channel is the name, such as "ntfy 1". members are what a program gets.
func (a *Alerter) Intercept(send func(channel, title, body string, members map[string]any) error) {
	for _, w := range a.workers {
		w.send = func(ctx context.Context, m message) error {
			err := send(w.String(), m.title, m.body, m.members())
			if errors.Is(err, ErrHangs) {
				<-ctx.Done()
				err = context.Cause(ctx)
			}
			return err
		}
	}
}

// Send sends a message and returns the error of the service, and the text that people see of it.
func (c Channel) Send(ctx context.Context, title, body string) (text string, err error) {
	if err = c.send(ctx, message{kind: kindTest, title: title, body: body}); err != nil {
		text = reason(err)
	}
	return text, err
}

// Through makes all HTTP services send through rt until restore is called. Nothing else may be sent meanwhile.
func Through(rt http.RoundTripper) (restore func()) {
	was := client.Transport
	client.Transport = rt
	return func() { client.Transport = was }
}

// Limits of a message and of a channel.
const (
	MaxBody   = maxBody
	RetryFor  = retryFor
	MaxUntold = maxUntold
)

// Clean makes a text of a customer safe.
func Clean(text string) string { return clean(text, maxName) }
