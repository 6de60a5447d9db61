// Package delivery owns the SQL about deliveries that several packages need: the numbers of states, outcomes and causes, and common
// expressions. It runs no statement.
package delivery

import "github.com/keyhook/keyhook/storage/webhook"

// The states of deliveries. These numbers of package webhook are texts, because SQLite uses a partial index only if the statement
// has the number itself, not a parameter.
const (
	Pending     = "0" // webhook.Pending
	Delivered   = "1" // webhook.Delivered
	Exhausted   = "2" // webhook.Exhausted
	Dropped     = "3" // webhook.Dropped
	Sending     = "4" // an attempt is in progress; pending for everybody else
	SendingLast = "5" // an attempt is in progress, and nothing follows it; see EndOfLast
)

// InProgress is Sending as a parameter of statements.
const InProgress webhook.DeliveryState = 4

// The outcomes of attempts.
const (
	OutcomeSending     = "0" // webhook.Sending; not in the table
	OutcomeSucceeded   = "1" // webhook.Succeeded
	OutcomeFailed      = "2" // webhook.Failed
	OutcomeInterrupted = "3" // webhook.Interrupted
)

// The causes of deliveries and attempts.
const (
	CauseEvent = "0" // webhook.ByEvent
	CauseRetry = "1" // webhook.ByRetry
	CauseHand  = "2" // webhook.ByHand
	CauseTest  = "3" // webhook.ByTest
)

// SQL expressions of a delivery d.
const (
	// SendingOn is true while an attempt is in progress that another may follow. SQLite uses the index deliveries_sending only for a
	// condition with the words of the index, which also has SendingLast.
	SendingOn = "(d.state >= " + Sending + " AND d.state < " + SendingLast + ")"
	// EndOfLast is the state after SendingLast, if the attempt did not succeed: a test is exhausted, and other deliveries were dropped.
	EndOfLast = "CASE WHEN cause = " + CauseTest + " THEN " + Exhausted + " ELSE " + Dropped + " END"
	// State is the state that callers see. An attempt in progress is pending, and nothing is pending for a deleted subscription, whose
	// deliveries are dropped later. Few deliveries are pending, so only these look for their subscription.
	State = "CASE WHEN d.state IN (" + Pending + ", " + Sending + ") THEN (SELECT iif(deleted_at IS NULL, " + Pending + ", " + Dropped + ")" +
		" FROM subscriptions WHERE id = d.subscription_id) WHEN d.state = " + SendingLast + " THEN " + EndOfLast + " ELSE d.state END"
	// Progress orders the deliveries of an event to a subscription. The highest one decides the state of the event there.
	Progress = "CASE " + State + " WHEN " + Delivered + " THEN 3 WHEN " + Pending + " THEN 2 WHEN " + Exhausted + " THEN 1 ELSE 0 END"
	// AttemptRow and AttemptCause are the row id and the cause of the attempt in progress of a delivery d.
	AttemptRow   = "(d.id << 8 | d.attempts + 1)"
	AttemptCause = "CASE WHEN d.attempts > 0 THEN " + CauseRetry + " ELSE d.cause END"
)

// SQL expressions of an event e: whether it is a test of one subscription.
const (
	IsTest  = "e.mark IS 1" // webhook.Test
	NotTest = "e.mark IS NOT 1"
)

// GateColumns are the columns of a webhook.Gate of a subscription s and its plan p, without Deleted. The hold of the queue and the
// interval of probes are in memory.
const GateColumns = "s.status, s.consecutive_failures, s.last_error, s.epoch, s.failing_since, s.probe_at, s.paused, p.webhooks"

// Deleted is Deleted of the webhook.Gate of a subscription s in its organization o.
const Deleted = "(s.deleted_at IS NOT NULL OR o.closed_at IS NOT NULL)"

// Why is Why of the webhook.Gate that GateColumns and Deleted read, while the queue is not held.
const Why = `CASE
	WHEN ` + Deleted + ` THEN '` + string(webhook.BlockedByDeletion) + `'
	WHEN ` + PausedByPerson + ` THEN '` + string(webhook.BlockedByPause) + `'
	WHEN s.status = '` + string(webhook.Disabled) + `' THEN '` + string(webhook.BlockedByFault) + `'
	WHEN NOT p.webhooks THEN '` + string(webhook.BlockedByPlan) + `'
	ELSE '` + string(webhook.NotBlocked) + `' END`

// PausedByPerson is an SQL expression: whether a person has set is_active of the subscription s to false. It is ByPerson of webhook.Health.
const PausedByPerson = "(s.paused = 1 OR s.probe_at = -1)"

// EventWaits reports whether an event e has a pending delivery to a subscription that nothing blocks, or an attempt in progress.
const EventWaits = `EXISTS (
	SELECT 1 FROM deliveries d
	JOIN subscriptions s ON s.id = d.subscription_id
	JOIN organizations o ON o.id = s.organization_id JOIN plans p ON p.id = o.plan_id
	WHERE d.event_id = e.id AND (
		d.state = ` + Pending + ` AND ` + Why + ` = ''
		OR d.state >= ` + Sending + `))`

// Attempts returns an SQL condition: the attempt a is one of the deliveries from first to last, two SQL expressions of row ids.
func Attempts(first, last string) string {
	return "a.id BETWEEN " + first + " << 8 AND " + last + " << 8 | 255"
}

// Running returns an SQL condition: the attempt in progress of a delivery d has the row id attempt, an SQL expression.
func Running(attempt string) string {
	return "(d.id = " + attempt + " >> 8 AND d.state >= " + Sending + " AND " + AttemptRow + " = " + attempt + ")"
}

// FirstPending returns SQL that selects the pending delivery of a subscription, an SQL expression, with the earliest due time.
func FirstPending(subscription string) string {
	return `SELECT d.id FROM deliveries d INDEXED BY deliveries_pending
		WHERE d.subscription_id = ` + subscription + ` AND d.state = ` + Pending + ` ORDER BY d.due_at LIMIT 1`
}

// FirstInOrder returns SQL that selects the first pending delivery of an ordered subscription, without redeliveries.
func FirstInOrder(subscription string) string {
	return `SELECT d.id FROM deliveries d INDEXED BY deliveries_ordered
		WHERE d.subscription_id = ` + subscription + ` AND d.state = ` + Pending + ` AND d.sequence > 0 ORDER BY d.sequence, d.due_at LIMIT 1`
}

// FirstDue returns an SQL expression of the earliest due time of a subscription. It is the time of the beginning of an
// attempt if only attempts are in progress, and NULL if nothing is pending.
func FirstDue(subscription string) string {
	return `(SELECT min(due_at) FROM (
		SELECT min(d.due_at) AS due_at FROM deliveries d INDEXED BY deliveries_pending
		WHERE d.subscription_id = ` + subscription + ` AND d.state = ` + Pending + `
		UNION ALL
		SELECT min(d.due_at) FROM deliveries d INDEXED BY deliveries_sending
		WHERE d.subscription_id = ` + subscription + ` AND ` + SendingOn + `))`
}
