package access

import "slices"

// The types of audit events. Each is published as an event too, so an organization can subscribe to its own. A new one
// goes into auditTypes too.
const (
	KeyCreated           = "api_key_created"
	KeyRevoked           = "api_key_revoked"
	KeyRotated           = "api_key_rotated"
	SubscriptionCreated  = "webhook_subscription_created"
	SubscriptionUpdated  = "webhook_subscription_updated"
	SubscriptionDeleted  = "webhook_subscription_deleted"
	SubscriptionFailing  = "webhook_subscription_failing"
	SubscriptionDisabled = "webhook_subscription_disabled"
	Redelivered          = "webhook_redelivered"
	SubscriptionReplayed = "webhook_subscription_replayed"
	SecretRotated        = "webhook_secret_rotated"
	PlanCreated          = "plan_created"
	PlanUpdated          = "plan_updated"
	PlanDeleted          = "plan_deleted"
	PermissionCreated    = "permission_created"
	PermissionUpdated    = "permission_updated"
	PermissionDeleted    = "permission_deleted"
	RoleCreated          = "role_created"
	RoleUpdated          = "role_updated"
	RoleDeleted          = "role_deleted"
	OrganizationCreated  = "organization_created"
	OrganizationUpdated  = "organization_updated"
	OrganizationDeleted  = "organization_deleted"
	UserCreated          = "user_created"
	UserUpdated          = "user_updated"
	UserDeleted          = "user_deleted"
	MemberSet            = "member_set"
	MemberRemoved        = "member_removed"
	AccessTokenCreated   = "access_token_created"
	AccessTokenRevoked   = "access_token_revoked"
	SessionStarted       = "session_started"
	SessionEnded         = "session_ended"
	QueueHeld            = "queue_held"
	QueueReleased        = "queue_released"
	QueueDiscarded       = "queue_discarded"
	ClockAccepted        = "clock_accepted"
	BackupCreated        = "backup_created"
	DatabaseRestored     = "database_restored"
)

// auditTypes are all of them. Nobody else may publish an event under one of these names, and to read such an event needs
// AuditRead. None of them has a dot, so names with a dot are free for the host product, whatever is added here later.
var auditTypes = []string{
	KeyCreated, KeyRevoked, KeyRotated, SubscriptionCreated, SubscriptionUpdated, SubscriptionDeleted,
	SubscriptionFailing, SubscriptionDisabled, Redelivered, SubscriptionReplayed, SecretRotated, PlanCreated,
	PlanUpdated, PlanDeleted, PermissionCreated, PermissionUpdated, PermissionDeleted, RoleCreated, RoleUpdated,
	RoleDeleted, OrganizationCreated, OrganizationUpdated, OrganizationDeleted, UserCreated, UserUpdated, UserDeleted,
	MemberSet, MemberRemoved, AccessTokenCreated, AccessTokenRevoked, SessionStarted, SessionEnded, QueueHeld,
	QueueReleased, QueueDiscarded, ClockAccepted, BackupCreated, DatabaseRestored,
}

// AuditTypes returns the types of all audit events, as a copy.
func AuditTypes() []string { return slices.Clone(auditTypes) }

// IsAuditType reports whether an event type is that of an audit event.
func IsAuditType(eventType string) bool { return slices.Contains(auditTypes, eventType) }

// HealthNews reports whether events of a type tell of the health of a subscription. One customer can cause any number of
// them by letting receivers fail. So such an event goes to healthy subscriptions of another host only, and an organization
// gets a bounded number of these deliveries a minute. The audit log has all of them.
func HealthNews(eventType string) bool {
	return eventType == SubscriptionFailing || eventType == SubscriptionDisabled
}

// Actor is who did something, as the audit log names it.
type Actor struct {
	Type         string `db:"actor_type"` // "user", "api_key" or "system"
	ID           string `db:"actor_id"`   // public id; empty for the appliance itself
	Name         string `db:"actor_name"`
	Organization int64  `db:"-"` // row id of the organization acted in
	IP           string `db:"ip"`
	RequestID    string `db:"request_id"`

	Authority Authority `db:"-"` // what it acts by; zero for the appliance itself, which grants nothing
}

// LogOrganization returns the organization whose audit log has what the actor changes for the whole instance, such as a role or a
// user. That is the credential's own. The organization acted in may be a customer's, who must not read it.
func (a Actor) LogOrganization() int64 {
	if a.Authority.Home != 0 {
		return a.Authority.Home
	}
	return a.Organization
}

// System is the appliance itself, acting in the given organization.
func System(organization int64) Actor {
	return Actor{Type: "system", Name: "keyhook", Organization: organization}
}

// AuditEvent is one line of the audit log. Details never hold a secret.
type AuditEvent struct {
	RowID int64  `db:"id"`
	ID    string `db:"-"`
	Type  string `db:"type"`
	Actor
	OrganizationID string `db:"organization_public_id"`
	TargetType     string `db:"target_type"`
	TargetID       string `db:"target_id"`
	At             int64  `db:"at"`
	Details        string `db:"details"` // a JSON object
}

// AuditFilter narrows the audit log; a zero field does not narrow. Before is the row id to go on from, newest first.
type AuditFilter struct {
	Before int64
	Limit  int
	Type   string
	Actor  string // a public id, or "system"
	Since  int64  // inclusive
	Until  int64  // exclusive
}

// AuditPage is a part of the log, newest first. Where Next is not 0, the search ended early, because it had looked at enough:
// Next is the row id to go on from. The page may hold fewer events than the limit then, or none.
type AuditPage struct {
	Events []AuditEvent
	Next   int64
}
