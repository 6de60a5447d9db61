package server

import (
	"errors"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// The types of public ids that paths, headers and filters may hold.
const (
	keyID          = access.KeyID
	subscriptionID = access.SubscriptionID
	eventID        = access.EventID
	attemptID      = access.AttemptID
	organizationID = access.OrganizationID
	userID         = access.UserID
	tokenID        = access.TokenID
)

// The nouns in the text of a 404. The store uses the same nouns, so a response does not tell whether an id is malformed,
// unknown, or of another organization.
const (
	aKey          = "API key"
	aSubscription = "subscription"
	anEvent       = "event"
	anAttempt     = "attempt"
	anOrg         = "organization"
	aUser         = "user"
	aToken        = "access token"
	aPlan         = "plan"
	aRole         = "role"
	aPermission   = "permission"
)

// pathID returns an id in the path. An id of another form gets the same 404 as an unknown one. Handlers read ids only here,
// because httprouter passes on "", "..", NUL and invalid UTF-8.
func (x *exchange) pathID(param string, t access.IDType, sort string) (string, error) {
	id := x.params.ByName(param)
	if !t.Valid(id) {
		return "", fault.Missing(sort)
	}
	return id, nil
}

// pathName is the same for plans and roles, which have a name in the path.
func (x *exchange) pathName(sort string) (string, error) {
	name := x.params.ByName("name")
	if !access.ValidName(name) {
		return "", fault.Missing(sort)
	}
	return name, nil
}

// pathKey is the same for permissions, which have a key in the path.
func (x *exchange) pathKey() (string, error) {
	key := x.params.ByName("key")
	if !access.ValidPermissionKey(key) {
		return "", fault.Missing(aPermission)
	}
	return key, nil
}

// exists adapts a finder to a yes/no check.
func exists[T any](find func(*exchange) (T, error)) func(*exchange) error {
	return func(x *exchange) error {
		_, err := find(x)
		return err
	}
}

// missingInstead returns the error to show for a request that failed with err. If the query or the body is invalid, that is
// told only if the resource in the path exists. Otherwise the response is 404, so that nobody learns anything about resources
// of others. Only failed requests pay for this look-up; a handler's own store call finds the resource anyway.
func (x *exchange) missingInstead(err error) error {
	if x.route.exists == nil || !isInvalidRequest(err) {
		return err
	}
	if missing := x.route.exists(x); fault.KindOf(missing) == fault.NotFound {
		return missing
	}
	return err
}

// isInvalidRequest reports whether err is about the query or the body of the request, not about stored data.
func isInvalidRequest(err error) bool {
	kind := fault.KindOf(err)
	var unsupported *refusal
	return kind == fault.Malformed || kind == fault.Invalid || kind == fault.TooLarge || errors.As(err, &unsupported)
}
