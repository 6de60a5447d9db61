package webhook

// Action says in a code what a person can do. Audit events, logs and responses have the code. Only server/explain turns it into a command.
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

// Concern is why an alert is necessary.
type Concern int

// The concerns. The first two are about a subscription, the others about the credentials of an organization.
const (
	Outage      Concern = iota // failures have disabled it, or it is active again
	LongFailure                // it fails, and is not disabled
	Expiry                     // they end soon
	Leak                       // they were reported as leaked
)

// Untold is something of which no alert has told the operator.
type Untold struct {
	Concern      Concern `db:"concern"`
	Subscription int64   `db:"id"` // 0 if it is about credentials
	Organization int64   `db:"organization_id"`
	DisabledAt   *int64  `db:"disabled_at"`   // of an Outage: since when the subscription is disabled; nil: it is active again
	FailingSince int64   `db:"failing_since"` // of a LongFailure
	ReadAt       int64   `db:"-"`             // of credentials: notices and reports before this time, in milliseconds, are told
}

// CredentialNews are the credentials of one organization whose end was announced, or that were reported as leaked, and of which no
// alert has told.
type CredentialNews struct {
	Row        int64   `db:"id"` // of the organization
	ID         string  `db:"public_id"`
	ExternalID *string `db:"external_id"`
	Name       string  `db:"name"`
	Keys       int     `db:"keys"`
	Tokens     int     `db:"tokens"`
	FirstAt    int64   `db:"first_at"` // when the first of them ends or was reported, in milliseconds
	LastAt     int64   `db:"last_at"`  // when the last of them was reported; 0 if they expire
}
