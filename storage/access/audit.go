package access

// The types of audit events. Each is published as an event too, so an organization can subscribe to its own.
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
	SessionCreated       = "session_created"
	SessionRevoked       = "session_revoked"
	QueueHeld            = "queue_held"
	QueueReleased        = "queue_released"
	QueueDiscarded       = "queue_discarded"
	BackupCreated        = "backup_created"
	DatabaseRestored     = "database_restored"
)

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
	Organization int64  `db:"-"` // row id of the organization acted in; events without one of their own go there
	IP           string `db:"ip"`
	RequestID    string `db:"request_id"`
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
