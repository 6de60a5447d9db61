package access

import "slices"

// The types of audit events. Keyhook also publishes each audit event as an event, so an organization can subscribe to its
// own. Add every new type to auditTypes.
const (
	KeyCreated            = "api_key_created"
	KeyRevoked            = "api_key_revoked"
	KeyRotated            = "api_key_rotated"
	KeyExpiring           = "api_key_expiring"
	SubscriptionCreated   = "webhook_subscription_created"
	SubscriptionUpdated   = "webhook_subscription_updated"
	SubscriptionDeleted   = "webhook_subscription_deleted"
	SubscriptionFailing   = "webhook_subscription_failing"
	SubscriptionDisabled  = "webhook_subscription_disabled"
	SubscriptionRecovered = "webhook_subscription_recovered"
	SubscriptionDiscarded = "webhook_subscription_discarded"
	Redelivered           = "webhook_redelivered"
	SubscriptionReplayed  = "webhook_subscription_replayed"
	SecretRotated         = "webhook_secret_rotated"
	PlanCreated           = "plan_created"
	PlanUpdated           = "plan_updated"
	PlanDeleted           = "plan_deleted"
	PermissionCreated     = "permission_created"
	PermissionUpdated     = "permission_updated"
	PermissionDeleted     = "permission_deleted"
	RoleCreated           = "role_created"
	RoleUpdated           = "role_updated"
	RoleDeleted           = "role_deleted"
	EventTypeCreated      = "event_type_created"
	EventTypeUpdated      = "event_type_updated"
	EventTypeDeleted      = "event_type_deleted"
	OrganizationCreated   = "organization_created"
	OrganizationUpdated   = "organization_updated"
	OrganizationDeleted   = "organization_deleted"
	OrganizationClosed    = "organization_closed"
	UserCreated           = "user_created"
	UserUpdated           = "user_updated"
	UserDeleted           = "user_deleted"
	UserErased            = "user_erased"
	MemberSet             = "member_set"
	MemberRemoved         = "member_removed"
	AccessTokenCreated    = "access_token_created"
	AccessTokenRevoked    = "access_token_revoked"
	AccessTokenExpiring   = "access_token_expiring"
	SessionStarted        = "session_started"
	SessionEnded          = "session_ended"
	PortalLinkCreated     = "portal_link_created"
	QueueHeld             = "queue_held"
	QueueReleased         = "queue_released"
	QueueDiscarded        = "queue_discarded"
	ClockAccepted         = "clock_accepted"
	BackupCreated         = "backup_created"
	DatabaseRestored      = "database_restored"
)

// auditTypes lists all types of audit events. Only Keyhook may publish events of these types, and reading them requires
// AuditRead. No name has a dot, so later additions never take a name with a dot from the host product.
var auditTypes = []string{
	KeyCreated, KeyRevoked, KeyRotated, KeyExpiring, SubscriptionCreated, SubscriptionUpdated, SubscriptionDeleted,
	SubscriptionFailing, SubscriptionDisabled, SubscriptionRecovered, SubscriptionDiscarded, Redelivered, SubscriptionReplayed, SecretRotated, PlanCreated,
	PlanUpdated, PlanDeleted, PermissionCreated, PermissionUpdated, PermissionDeleted, RoleCreated, RoleUpdated,
	RoleDeleted, EventTypeCreated, EventTypeUpdated, EventTypeDeleted, OrganizationCreated, OrganizationUpdated, OrganizationDeleted, OrganizationClosed, UserCreated, UserUpdated, UserDeleted,
	UserErased,
	MemberSet, MemberRemoved, AccessTokenCreated, AccessTokenRevoked, AccessTokenExpiring, SessionStarted, SessionEnded, PortalLinkCreated, QueueHeld,
	QueueReleased, QueueDiscarded, ClockAccepted, BackupCreated, DatabaseRestored,
}

// AuditTypes returns the types of all audit events, as a copy.
func AuditTypes() []string { return slices.Clone(auditTypes) }

// IsAuditType reports whether an event type belongs to audit events.
func IsAuditType(eventType string) bool { return slices.Contains(auditTypes, eventType) }

var healthNews = []string{SubscriptionFailing, SubscriptionDisabled, SubscriptionRecovered}

// HealthNewsTypes returns the types for which HealthNews is true, as a copy.
func HealthNewsTypes() []string { return slices.Clone(healthNews) }

// HealthNews reports whether events of a type announce a change in the health of a subscription. One customer can cause any
// number of them with receivers that fail. So these events go only to healthy subscriptions of another host. An
// organization gets a limited number of such deliveries per minute. The audit log has all of them.
func HealthNews(eventType string) bool { return slices.Contains(healthNews, eventType) }

// Actor is the person or program that did something, as the audit log shows it.
type Actor struct {
	Type         string `db:"actor_type"` // "user", "api_key", "portal" or "system"
	ID           string `db:"actor_id"`   // public id; empty for the appliance itself
	Name         string `db:"actor_name"`
	Organization int64  `db:"-"` // row id of the organization acted in
	IP           string `db:"ip"`
	RequestID    string `db:"request_id"`

	Authority Authority `db:"-"` // the credential; zero for the appliance itself, which grants nothing
	Applying  bool      `db:"-"` // for `keyhook apply`: Keyhook remembers what the actor creates, see Applied
}

// LogOrganization returns the organization whose audit log records changes to the whole instance, such as to a role or a
// user. It is the credential's own organization. The organization acted in may belong to a customer, who must not read them.
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

// AuditEvent is one line of the audit log. Details never contain a secret.
type AuditEvent struct {
	RowID int64  `db:"id"`
	ID    string `db:"-"`
	Type  string `db:"type"`
	Actor
	OrganizationID         string  `db:"organization_public_id"`
	OrganizationExternalID *string `db:"organization_external_id"`
	OrganizationName       string  `db:"organization_name"` // the name now
	TargetType             string  `db:"target_type"`
	TargetID               string  `db:"target_id"`
	At                     int64   `db:"at"`
	Details                string  `db:"details"` // a JSON object
}

// AuditFilter selects audit events. A zero field selects all. Before is the row id at which the page begins, newest first.
type AuditFilter struct {
	Before  int64
	Limit   int
	Type    string
	Actors  []string // any of them: public ids, or "system"; see AuditNames
	Targets []string // any of them: the public ids or the names of what was changed; see AuditNames
	Since   int64    // inclusive
	Until   int64    // exclusive
}
