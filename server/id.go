package server

import (
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

// What a 404 says there is none of. The store says the same of what it cannot find, so that nobody learns from the
// answer whether an id is malformed, unknown, or another organization's.
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

// pathID returns the id in the path; anything that is not of its type is as missing as what does not exist. It is the
// only way for an id from a path to the store: httprouter passes on "", "..", NUL and invalid UTF-8.
func (c *call) pathID(param string, t access.IDType, sort string) (string, error) {
	id := c.params.ByName(param)
	if !t.Valid(id) {
		return "", fault.Missing(sort)
	}
	return id, nil
}

// pathName is the same for a plan or a role, which are addressed by their names.
func (c *call) pathName(sort string) (string, error) {
	name := c.params.ByName("name")
	if !access.ValidName(name) {
		return "", fault.Missing(sort)
	}
	return name, nil
}

// pathKey is the same for a permission, which is addressed by its key.
func (c *call) pathKey() (string, error) {
	key := c.params.ByName("key")
	if !access.ValidPermissionKey(key) {
		return "", fault.Missing(aPermission)
	}
	return key, nil
}
