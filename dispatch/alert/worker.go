package alert

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/textproto"
	"syscall"
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

// ownError is an error whose text may be shown.
type ownError string

func (e ownError) Error() string { return string(e) }

const (
	errSlow   = ownError("no answer in time")
	errFull   = ownError("too many messages wait for the channel")
	errNoTLS  = ownError("the server offers no encryption, so the password was not sent")
	errNoAuth = ownError("the server offers no authentication")
)

// worker sends the messages of one channel, one after the other. So a dead channel delays no other channel.
type worker struct {
	Channel
	queue chan *flight
	log   *slog.Logger
}

type outcome struct {
	flight *flight
	sent   bool
}

// run sends messages until ctx ends. outcomes has room for all of them.
func (w *worker) run(ctx context.Context, outcomes chan<- outcome) {
	for ctx.Err() == nil { // a stop must not begin another message
		select {
		case <-ctx.Done():
		case f := <-w.queue:
			err := w.deliver(ctx, f.message)
			if ctx.Err() == nil {
				w.report(f.kind, err)
			}
			outcomes <- outcome{f, err == nil}
		}
	}
}

func (w *worker) report(kind Kind, err error) {
	if err == nil {
		w.log.Info("alert sent", "channel", w.String(), "kind", string(kind))
		return
	}
	w.log.Warn("an alert cannot be sent; correct alerts.urls or the service, and test it",
		"mend", webhook.Mend{Action: webhook.ActionTestAlerts}, "channel", w.String(), "kind", string(kind), "error", reason(err))
}

// deliver tries to send a message until it is sent, retryFor is over, or ctx ends.
func (w *worker) deliver(ctx context.Context, m message) error {
	end := time.Now().Add(retryFor)
	for delay := retryFirst; ; delay *= 2 {
		err := w.try(ctx, m)
		if err == nil || ctx.Err() != nil || time.Now().Add(delay).After(end) {
			return err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return err
		}
	}
}

// try sends a message once. When the server stops, the send has stopGrace to end.
func (c Channel) try(ctx context.Context, m message) error {
	sending, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), sendLimit, errSlow)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		defer time.AfterFunc(stopGrace, cancel).Stop()
		<-sending.Done()
	})()
	return c.send(sending, m)
}

const testBody = "This is a test. Keyhook tells you here what needs a person."

// SendTest sends a test message through a channel, once. The error shows no part of the URL.
func (c Channel) SendTest(ctx context.Context, from string) error {
	err := c.try(ctx, message{kind: kindTest, title: "Keyhook: test of an alert", body: testBody + "\n\n" + signature(from)})
	if err != nil {
		return errors.New(reason(err))
	}
	return nil
}

// reason says why a message was not sent. It repeats no text of an error, because those of net/http and net/smtp have parts of the URL,
// which may be secrets, and answers of services may repeat them.
func reason(err error) string {
	own, isOwn := errors.AsType[ownError](err)
	reply, isReply := errors.AsType[*textproto.Error](err)
	answer, isAnswer := errors.AsType[answered](err)
	number, isSystem := errors.AsType[syscall.Errno](err)
	_, isDNS := errors.AsType[*net.DNSError](err)
	_, isTLS := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case isOwn:
		return own.Error()
	case isReply:
		return fmt.Sprintf("the mail server answered %d", reply.Code)
	case isAnswer:
		return answer.Error()
	case isDNS:
		return "the name of the host is not known"
	case isTLS:
		return "the certificate of the service is not valid"
	case isSystem:
		return "cannot connect: " + number.Error()
	}
	return "cannot talk to the service"
}
