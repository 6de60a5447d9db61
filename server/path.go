package server

import (
	"context"

	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/storage/access"
)

// The nouns in the text of a 404. The store uses the same nouns, so a response does not tell whether an id is malformed,
// unknown, or of another organization.
const (
	aKey         = "API key"
	anEvent      = "event"
	anAttempt    = "attempt"
	anAuditEvent = "audit event"
)

// subscriptionNames is the part of the store that finds a subscription by its external id.
type subscriptionNames interface {
	SubscriptionID(ctx context.Context, organization int64, externalID string) (string, error)
}

// pathSubscription returns the id of the subscription in the path, which may have the external id instead. An id is not looked up
// here; the handler does that.
func pathSubscription(x *exchange.Exchange, store subscriptionNames) (string, error) {
	text := x.Path.Value("id")
	if access.SubscriptionID.Valid(text) {
		return text, nil
	}
	return store.SubscriptionID(x.Request.Context(), x.Organization(), text)
}

// listed returns the organization whose items a list has: the one in which the caller acts, or all. Only operators may list all.
func listed(x *exchange.Exchange) (organization int64, err error) {
	x.Query.Matching("organization", "must be all; the header "+credential.OrganizationHeader+" names one organization",
		func(value string) bool { return value == exchange.AllOrganizations })
	if !x.ListsAll() {
		return x.Organization(), nil
	}
	return access.AllOrganizations, check.Permit(*x.Principal, access.NewScope(access.PlatformRead))
}
