package cli

import "time"

// The lists of the API.
const (
	pathKeys          = "/api/v1/api-keys/"
	pathSubscriptions = "/api/v1/webhooks/subscriptions/"
	pathEvents        = "/api/v1/events/"
	pathAudit         = "/api/v1/audit-events/"
	pathOrganizations = "/api/v1/organizations/"
	pathUsers         = "/api/v1/users/"
	pathRoles         = "/api/v1/roles/"
	pathPermissions   = "/api/v1/permissions/"
	pathPlans         = "/api/v1/plans/"
	pathQueue         = "/api/v1/queue/"
	pathClock         = "/api/v1/clock/"
)

// nouns are all nouns, in the order of the help.
var nouns = []noun{
	keyNoun, subscriptionNoun, deliveryNoun, eventNoun, organizationNoun, userNoun, roleNoun, permissionNoun, planNoun, auditNoun, queueNoun, clockNoun,
}

// maxOverlap is the longest overlap of two keys or secrets that the API accepts.
const maxOverlap = 7 * 24 * time.Hour

// expiryFields say when a credential expires.
var expiryFields = []field{
	{member: "expires_at", usage: "time of expiry (default: never)", value: timestamp},
	{member: "expires_at", flag: "expires-in", usage: "time until expiry, such as 12h, 30d or 2w", value: fromNow},
}

// periodFields select a part of a log.
var periodFields = []field{
	{member: "since", usage: "only from this time; 24h means 24 hours ago", value: timeOrAgo},
	{member: "until", usage: "only before this time; 1h means one hour ago", value: timeOrAgo},
}
