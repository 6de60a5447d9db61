package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
)

// publish publishes an event with the API key and returns its id.
func (s *stage) publish(ctx context.Context, eventType string, data object) (string, error) {
	var event struct {
		created
		Deliveries int `json:"deliveries"`
	}
	if err := s.holder.Call(ctx, "POST", "/api/v1/events/", object{"type": eventType, "data": data}, http.StatusAccepted, &event); err != nil {
		return "", err
	}
	if event.Deliveries != 1 {
		return "", fmt.Errorf("the event went to %d subscriptions, not to 1", event.Deliveries)
	}
	return event.ID, nil
}

func (s *stage) deliver(ctx context.Context) error {
	began := time.Now()
	id, err := s.publish(ctx, "order.created", object{"number": 1001, "total": "19.90"})
	if err != nil {
		return err
	}
	s.say("published order.created with the API key: %s", id)
	got, err := s.receiver.next(ctx)
	if err != nil {
		return err
	}
	s.say("the receiver had it %.1f ms later:", time.Since(began).Seconds()*1000)
	s.say("    X-Service-Signature  %s…", got.header.Get("X-Service-Signature")[:24])
	s.say("    webhook-signature    %s…", got.header.Get("webhook-signature")[:24])
	s.say("    %s", got.body)
	if err := expect("the event", got.header.Get("X-Service-Event-Id"), id); err != nil {
		return err
	}
	if err := s.verify(got, s.secret); err != nil {
		return err
	}
	s.say("checked: both signatures are right; with one byte of the body changed neither is")
	return nil
}

// verify checks a delivery in both schemes, and that a body changed by one byte is refused.
func (s *stage) verify(got delivery, secret string) error {
	forged := append([]byte{}, got.body...)
	forged[len(forged)/2] ^= 1
	for name, check := range map[string]func(body []byte) error{
		"hex": func(body []byte) error { return signature.Verify(secret, got.header, body, time.Now(), 0) },
		"Standard Webhooks": func(body []byte) error {
			return signature.VerifyStandard(secret, got.header, body, time.Now(), 0)
		},
	} {
		if err := check(got.body); err != nil {
			return fmt.Errorf("the %s signature: %w", name, err)
		}
		if check(forged) == nil {
			return fmt.Errorf("the %s signature holds for a body that was changed", name)
		}
	}
	return nil
}

func (s *stage) retry(ctx context.Context) error {
	s.receiver.fail(2)
	id, err := s.publish(ctx, "order.paid", object{"number": 1001})
	if err != nil {
		return err
	}
	s.say("published order.paid: %s; the receiver answers 503 twice", id)
	stamps := map[string]bool{}
	for n := 1; n <= 3; n++ {
		got, err := s.receiver.next(ctx)
		if err != nil {
			return err
		}
		if err := s.verify(got, s.secret); err != nil {
			return fmt.Errorf("attempt %d: %w", n, err)
		}
		stamps[got.header.Get("X-Service-Signature")] = true
		s.say("    attempt %s, answered %d", got.header.Get("X-Service-Attempt"), got.answered)
	}
	attempts, err := s.log(ctx, id, 3)
	if err != nil {
		return err
	}
	outcomes := []string{}
	for _, a := range attempts { // newest first
		outcomes = append(outcomes, fmt.Sprintf("%d %s", a.Number, a.Outcome))
	}
	if err := expect("the log", strings.Join(outcomes, ", "), "3 succeeded, 2 failed, 1 failed"); err != nil {
		return err
	}
	var sub struct {
		Status   string `json:"status"`
		Failures int    `json:"consecutive_failures"`
	}
	if err := s.owner.Call(ctx, "GET", "/api/v1/webhooks/subscriptions/"+s.subscription+"/", nil, http.StatusOK, &sub); err != nil {
		return err
	}
	if sub.Status != "healthy" || sub.Failures != 0 {
		return fmt.Errorf("the subscription is %s with %d failures", sub.Status, sub.Failures)
	}
	s.say("checked: each attempt is on record (%s), and the subscription is healthy again", strings.Join(outcomes, ", "))
	return nil
}

// attempt is a line of the delivery log.
type attempt struct {
	Number  int    `json:"attempt_number"`
	Outcome string `json:"outcome"`
}

// log returns the attempts for an event, once the last of n is recorded: the receiver has it a moment earlier.
func (s *stage) log(ctx context.Context, event string, n int) ([]attempt, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, demoWait, fmt.Errorf("the log does not show %d attempts after %s", n, demoWait))
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		var page struct {
			Data []attempt `json:"data"`
		}
		if err := s.owner.Call(ctx, "GET", "/api/v1/webhooks/subscriptions/"+s.subscription+"/deliveries/?event_id="+event, nil, http.StatusOK, &page); err != nil {
			return nil, err
		}
		if len(page.Data) == n && page.Data[0].Outcome != "sending" {
			return page.Data, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *stage) rotate(ctx context.Context) error {
	var sub struct {
		Secret string `json:"secret"`
	}
	if err := s.owner.Call(ctx, "POST", "/api/v1/webhooks/subscriptions/"+s.subscription+"/rotate-secret/", object{"overlap_seconds": 3600}, http.StatusOK, &sub); err != nil {
		return err
	}
	if sub.Secret == s.secret {
		return fmt.Errorf("the secret is the old one")
	}
	s.oldSecret, s.secret = s.secret, sub.Secret
	if _, err := s.publish(ctx, "order.shipped", object{"number": 1001}); err != nil {
		return err
	}
	got, err := s.receiver.next(ctx)
	if err != nil {
		return err
	}
	for _, secret := range []string{s.secret, s.oldSecret} {
		if err := s.verify(got, secret); err != nil {
			return err
		}
	}
	s.say("checked: the delivery after it verifies with the new secret and, for an hour, with the old one")
	return nil
}
