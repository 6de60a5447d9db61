package alert

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/keyhook/keyhook/storage/webhook"
)

// The limits of one channel.
const (
	sendLimit  = time.Minute     // of one try
	retryFirst = 5 * time.Second // delay before the second try; each delay is twice the one before it
	retryFor   = 5 * time.Minute // then the message is given up, and the next interval has a newer one
	maxQueued  = 20              // messages that wait for one channel: two of each kind
	stopGrace  = 2 * time.Second // wait for a send when the server stops
)

var errSlow = errors.New("no answer in time")

// worker sends the messages of one channel, one after the other. So a dead channel delays no other channel.
type worker struct {
	Channel
	queue   chan message
	sendNow func(ctx context.Context, m message) error
	log     *slog.Logger
	failing bool // the last message was not sent
}

func newWorker(c Channel, log *slog.Logger) *worker {
	return &worker{Channel: c, queue: make(chan message, maxQueued), sendNow: c.send, log: log}
}

// outcome is how a message ended at one channel.
type outcome struct {
	kind   Kind
	flight *flight
	sent   bool
}

// run sends messages until ctx ends. outcomes has room for all of them.
func (w *worker) run(ctx context.Context, outcomes chan<- outcome) {
	for ctx.Err() == nil { // a stop must not begin another message
		select {
		case <-ctx.Done():
		case m := <-w.queue:
			err := w.deliver(ctx, m)
			if ctx.Err() == nil {
				w.report(m, err)
			}
			outcomes <- outcome{m.kind, m.flight, err == nil}
		}
	}
}

// report logs a message that was sent, and a change from working to failing or back.
func (w *worker) report(m message, err error) {
	switch {
	case err == nil && w.failing:
		w.log.Info("the alert channel works again", "channel", w.String(), "kind", string(m.kind))
	case err == nil:
		w.log.Info("alert sent", "channel", w.String(), "kind", string(m.kind))
	case !w.failing:
		w.log.Warn("an alert cannot be sent; correct alerts.urls or the service, and test it",
			"mend", webhook.Mend{Action: webhook.ActionTestAlerts}, "channel", w.String(), "kind", string(m.kind), "error", w.scrub(err))
	}
	w.failing = err != nil
}

// deliver tries to send a message until it is sent, retryFor is over, or ctx ends.
func (w *worker) deliver(ctx context.Context, m message) error {
	end := time.Now().Add(retryFor)
	for delay := retryFirst; ; delay *= 2 {
		err := w.try(ctx, m)
		if err == nil || ctx.Err() != nil || time.Now().Add(delay).After(end) {
			return err
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// try sends a message once. When the server stops, the send has stopGrace to end.
func (w *worker) try(ctx context.Context, m message) error {
	sending, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), sendLimit, errSlow)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		defer time.AfterFunc(stopGrace, cancel).Stop()
		<-sending.Done()
	})()
	return w.sendNow(sending, m)
}

const testBody = "This is a test. Keyhook tells you here what needs a person."

// SendTest sends a test message through a channel, once. The error shows no part of the URL.
func (c Channel) SendTest(ctx context.Context, from string) error {
	err := newWorker(c, nil).try(ctx, message{kind: kindTest, title: "Keyhook: test of an alert", body: testBody + "\n\n" + signature(from)})
	if err != nil {
		return errors.New(c.scrub(err))
	}
	return nil
}
