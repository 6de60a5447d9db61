package storage

import "github.com/keyhook/keyhook/storage/webhook"

// SQLNumbers are the numbers that statements write, by those that package webhook has.
func SQLNumbers() (states map[webhook.DeliveryState]string, outcomes map[webhook.Outcome]string, causes map[webhook.Trigger]string) {
	return map[webhook.DeliveryState]string{
			webhook.Pending: statePending, webhook.Delivered: stateDelivered, webhook.Exhausted: stateExhausted, webhook.Dropped: stateDropped, sending: stateSending,
		}, map[webhook.Outcome]string{
			webhook.Sending: outcomeSending, webhook.Succeeded: outcomeSucceeded, webhook.Failed: outcomeFailed, webhook.Interrupted: outcomeInterrupted,
		}, map[webhook.Trigger]string{
			webhook.ByEvent: causeEvent, webhook.ByRetry: causeRetry, webhook.ByHand: causeHand, webhook.ByTest: causeTest,
		}
}
