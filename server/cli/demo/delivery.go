package demo

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/keyhook/keyhook/dispatch/signature"
	"github.com/keyhook/keyhook/server/cli/output"
)

// publish publishes an event with the API key and returns its id.
func (s *demo) publish(ctx context.Context, eventType string, data map[string]any) (string, error) {
	var event struct {
		created
		Deliveries int `json:"deliveries"`
	}
	if err := s.holder.Call(ctx, "POST", "/api/v1/events/", map[string]any{"type": eventType, "data": data}, http.StatusAccepted, &event); err != nil {
		return "", err
	}
	if event.Deliveries != 1 {
		return "", fmt.Errorf("the event went to %d subscriptions instead of 1", event.Deliveries)
	}
	return event.ID, nil
}

func (s *demo) deliver(ctx context.Context) error {
	began := time.Now()
	id, err := s.publish(ctx, "order.created", map[string]any{"number": 1001, "total": "19.90"})
	if err != nil {
		return err
	}
	s.say("Published order.created with the API key: %s", id)
	got, err := s.receiver.next(ctx)
	if err != nil {
		return err
	}
	s.say("The receiver got it %.1f ms later:", time.Since(began).Seconds()*1000)
	s.say("    X-Service-Signature  %s", output.Shorten(got.header.Get("X-Service-Signature"), 25))
	s.say("    webhook-signature    %s", output.Shorten(got.header.Get("webhook-signature"), 25))
	s.say("    %s", got.body)
	if err := expect("the event", got.header.Get("X-Service-Event-Id"), id); err != nil {
		return err
	}
	if err := s.verify(got, s.secret); err != nil {
		return err
	}
	s.say("Checked: both signatures are right. They are wrong for a body with one changed byte.")
	return nil
}

// verify checks the signatures of a delivery in both schemes, and that they are wrong for a body with one changed byte.
func (s *demo) verify(got delivery, secret string) error {
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
			return fmt.Errorf("the %s signature is right for a changed body", name)
		}
	}
	return nil
}

func (s *demo) retry(ctx context.Context) error {
	s.receiver.fail(2)
	id, err := s.publish(ctx, "order.paid", map[string]any{"number": 1001})
	if err != nil {
		return err
	}
	s.say("Published order.paid: %s. The receiver responds with 503 twice.", id)
	for n := 1; n <= 3; n++ {
		got, err := s.receiver.next(ctx)
		if err != nil {
			return err
		}
		if err := s.verify(got, s.secret); err != nil {
			return fmt.Errorf("attempt %d: %w", n, err)
		}
		s.say("    attempt %s: status %d", got.header.Get("X-Service-Attempt"), got.status)
	}
	return s.checkRecovery(ctx, id)
}

// checkRecovery checks the log of an event whose third attempt succeeded, and the health of its subscription.
func (s *demo) checkRecovery(ctx context.Context, id string) error {
	attempts, err := s.log(ctx, id, 3)
	if err != nil {
		return err
	}
	outcomes := []string{}
	for _, a := range attempts { // newest first
		outcomes = append(outcomes, fmt.Sprintf("attempt %d %s", a.Number, a.Outcome))
	}
	if err := expect("the log", strings.Join(outcomes, ", "), "attempt 3 succeeded, attempt 2 failed, attempt 1 failed"); err != nil {
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
	s.say("Checked: each attempt is in the log (%s), and the subscription is healthy again.", strings.Join(outcomes, ", "))
	return nil
}

// attempt is one line of the delivery log.
type attempt struct {
	Number  int    `json:"attempt_number"`
	Outcome string `json:"outcome"`
}

// log returns the attempts for an event. It waits until the last of n has a result, which is recorded after the response.
func (s *demo) log(ctx context.Context, event string, n int) ([]attempt, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("the log does not show %d attempts after %s", n, wait))
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

func (s *demo) rotate(ctx context.Context) error {
	var sub struct {
		Secret string `json:"secret"`
	}
	if err := s.owner.Call(ctx, "POST", "/api/v1/webhooks/subscriptions/"+s.subscription+"/rotate-secret/", map[string]any{"overlap_seconds": 3600}, http.StatusOK, &sub); err != nil {
		return err
	}
	if sub.Secret == s.secret {
		return fmt.Errorf("the secret did not change")
	}
	s.oldSecret, s.secret = s.secret, sub.Secret
	if _, err := s.publish(ctx, "order.shipped", map[string]any{"number": 1001}); err != nil {
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
	s.say("Checked: the next delivery verifies with the new secret. For one hour, it also verifies with the old one.")
	return nil
}
