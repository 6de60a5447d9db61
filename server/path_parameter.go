package server

import (
	"strings"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// The type prefixes of public ids that paths, headers and filters may hold.
const (
	keyID          = "key"
	subscriptionID = "sub"
	eventID        = "evt"
	attemptID      = "att"
	organizationID = "org"
	userID         = "usr"
	tokenID        = "tok"
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

// validID reports whether s is a public id of that type: the prefix, and 26 characters of Crockford's base 32 in lower
// case of which the first leaves room for 128 bits (TypeID 0.3).
func validID(prefix, s string) bool {
	suffix, found := strings.CutPrefix(s, prefix+"_")
	if !found || len(suffix) != 26 || suffix[0] > '7' {
		return false
	}
	for i := range len(suffix) {
		if strings.IndexByte("0123456789abcdefghjkmnpqrstvwxyz", suffix[i]) < 0 {
			return false
		}
	}
	return true
}

// pathID returns the id in the path; anything that is not of its type is as missing as what does not exist. It is the
// only way for an id from a path to the store: httprouter passes on "", "..", NUL and invalid UTF-8.
func (c *call) pathID(param, prefix, sort string) (string, error) {
	id := c.params.ByName(param)
	if !validID(prefix, id) {
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
