package principal

import (
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// refusals are the words for a sort of credential in its refusals.
type refusals struct{ code, name, holder, holderCode string }

var (
	refusedKey   = refusals{"key", "API key", "The creator of this API key", "creator_inactive"}
	refusedToken = refusals{"token", "access token", "The user of this access token", "user_inactive"}
	// A session that has ended is unknown.
	refusedSession = refusals{"token", "session's access token", "The user of this session", "user_inactive"}
	// A link that was used or has expired is unknown.
	refusedLink = refusals{"token", "sign-in link", "The user of this sign-in link", "user_inactive"}
	// The identity itself was verified before, so only its user can be refused.
	refusedIdentity = refusals{"token", "token", "The user of this token", "user_inactive"}
)

// InvalidLink refuses a sign-in link that is unknown, was used or has expired.
func InvalidLink() error { return refusedLink.invalid() }

// invalid is the refusal of a malformed and of an unknown credential. It has the same code for all sorts of credentials.
func (r refusals) invalid() error {
	return fault.New(fault.Unauthenticated, "invalid_key", "This %s is not valid; check that it was copied in full.", r.name)
}

func (r refusals) revoked() error {
	return fault.New(fault.Unauthenticated, r.code+"_revoked", "This %s has been revoked; use another.", r.name)
}

func (r refusals) expired() error {
	return fault.New(fault.Unauthenticated, r.code+"_expired", "This %s has expired; use another.", r.name)
}

// inactive refuses the credential of a user who may not act. It names the user only by the id.
func (r refusals) inactive(user string, isActive bool) error {
	why := "no longer a member of the organization; an operator can add the user again"
	if !isActive {
		why = "not active; an operator can activate the user"
	}
	return fault.New(fault.Unauthenticated, r.holderCode, "%s, %s, is %s.", r.holder, user, why)
}

// forCheck returns the refusal for a failed check of the credential; nil for a check of something else.
func (r refusals) forCheck(failed access.Check, of access.User) error {
	switch failed {
	case access.CheckRevoked:
		return r.revoked()
	case access.CheckExpired:
		return r.expired()
	case access.CheckCreator:
		return r.inactive(of.ID, of.IsActive)
	}
	return nil
}
