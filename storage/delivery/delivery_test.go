package delivery_test

import (
	"strconv"
	"testing"

	"github.com/keyhook/keyhook/storage/delivery"
	"github.com/keyhook/keyhook/storage/webhook"
)

func TestStatementsHaveTheNumbersOfTheStates(t *testing.T) {
	t.Parallel()
	for state, number := range map[webhook.DeliveryState]string{
		webhook.Pending: delivery.Pending, webhook.Delivered: delivery.Delivered, webhook.Exhausted: delivery.Exhausted,
		webhook.Dropped: delivery.Dropped, delivery.InProgress: delivery.Sending,
	} {
		if number != strconv.Itoa(int(state)) {
			t.Errorf("the state %v is written as %s", state, number)
		}
	}
	for outcome, number := range map[webhook.Outcome]string{
		webhook.Sending: delivery.OutcomeSending, webhook.Succeeded: delivery.OutcomeSucceeded, webhook.Failed: delivery.OutcomeFailed,
		webhook.Interrupted: delivery.OutcomeInterrupted,
	} {
		if number != strconv.Itoa(int(outcome)) {
			t.Errorf("the outcome %v is written as %s", outcome, number)
		}
	}
	for cause, number := range map[webhook.Trigger]string{
		webhook.ByEvent: delivery.CauseEvent, webhook.ByRetry: delivery.CauseRetry, webhook.ByHand: delivery.CauseHand, webhook.ByTest: delivery.CauseTest,
	} {
		if number != strconv.Itoa(int(cause)) {
			t.Errorf("the cause %v is written as %s", cause, number)
		}
	}
}
