package webhook

// Action says in a code what a person can do. Audit events, logs and responses have the code. Only server/explain turns it into
// a command.
type Action string

// The actions on a subscription or a delivery.
const (
	ActionRecover            Action = "recover"
	ActionReactivate         Action = "reactivate"
	ActionTest               Action = "test"
	ActionRaiseRateLimit     Action = "raise_rate_limit"
	ActionAddEventType       Action = "add_event_type"
	ActionReceiveAuditEvents Action = "receive_audit_events"
	ActionRedeliver          Action = "redeliver"
	ActionRedeliverDropped   Action = "redeliver_dropped"
	ActionReplayFailed       Action = "replay_failed"
	ActionReplayMissed       Action = "replay_missed"
	ActionDiscard            Action = "discard"
)

// The actions of an operator.
const (
	ActionChangePlan        Action = "change_plan"
	ActionReleaseQueue      Action = "release_queue"
	ActionListSubscriptions Action = "list_subscriptions"
	ActionListDisabled      Action = "list_disabled"
	ActionListFailing       Action = "list_failing"
	ActionListAudit         Action = "list_audit"
	ActionRunDoctor         Action = "run_doctor"
	ActionTestAlerts        Action = "test_alerts"
)

// Mend is an action with what its command must name. All ids are public ids.
type Mend struct {
	Action       Action
	Organization string // empty: the one in which the command acts anyway
	Subscription string
	// With is what the action needs besides: an attempt, a time, a plan, a limit, or event types. Only a recovery may have none.
	With string
}
