package sender

import (
	"net/http"
	"net/url"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Target is a webhook.Target with all that is the same for its attempts. Make it with Sender.Prepare: Send cannot use another one.
type Target struct {
	webhook.Target
	request   *http.Request // without headers, body and context
	current   *signature.Signer
	previous  *signature.Signer // nil: there is no previous secret
	headers   http.Header       // the subscription's own
	sendError webhook.Failure   // why nothing can be sent to it; zero if it can
}

// Prepare makes a Target. A problem with the target becomes the error of its attempts, so the owner sees it.
func (s *Sender) Prepare(t webhook.Target) *Target {
	prepared := &Target{Target: t, headers: make(http.Header, len(t.Headers))}
	u, err := url.Parse(t.URL)
	unusable := t.Unusable
	switch {
	case unusable != "":
	case err != nil || u.Host == "":
		unusable = "the URL of the subscription is not valid"
	case u.Scheme != "https" && !(s.options.AllowHTTP && u.Scheme == "http"):
		unusable = "the URL of the subscription must begin with https://, unless egress.allow_http is set"
	case prepared.setSigners() != nil:
		unusable = "the signing secret cannot be used; rotate it"
	}
	if unusable != "" {
		prepared.sendError = webhook.Failure{Class: webhook.ProtocolError, Text: webhook.NothingSent + unusable}
		return prepared
	}
	for _, h := range t.Headers {
		// The setting of the prefix may have changed since the header was accepted.
		if !webhook.ReservedHeader(h.Name, s.names.prefix) {
			prepared.headers[h.Name] = []string{h.Value.Reveal()}
		}
	}
	prepared.request = &http.Request{Method: http.MethodPost, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	return prepared
}

func (t *Target) setSigners() (err error) {
	if t.current, err = signature.NewSigner(t.Secret.Reveal()); err == nil && !t.Previous.IsZero() {
		t.previous, err = signature.NewSigner(t.Previous.Reveal())
	}
	return err
}

// Headers returns Keyhook's headers of the first attempt of each job, signed now. They have none of the subscription's own headers.
func (s *Sender) Headers(to webhook.Target, jobs []webhook.Job) ([]http.Header, error) {
	t := &Target{Target: to}
	if err := t.setSigners(); err != nil {
		return nil, err
	}
	signed := make([]http.Header, len(jobs))
	for i := range jobs {
		signed[i] = s.header(t, &jobs[i], time.Now())
	}
	return signed, nil
}
