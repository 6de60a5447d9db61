package access

// Check is one of the checks that every use of an API key goes through.
type Check uint8

// The checks of an API key, in the order in which they are made, wherever that is: for a request with the key, for a proxy
// or a back end that asks about it, and for whoever wants to know why. The first that fails speaks, and none after it is
// made. What fails before CheckRateLimit does not count against the window.
const (
	CheckParse        Check = iota // the form and the checksum of what was shown
	CheckLookUp                    // whether there is such a key
	CheckRevoked                   // whether it has been revoked
	CheckExpired                   // whether it has expired
	CheckCreator                   // whether its creator is active, and still a member of its organization
	CheckPlan                      // whether the plan of its organization includes API keys
	CheckRateLimit                 // whether a request is left in its window and its organization's; it is counted here
	CheckOrganization              // whether it may act in the organization that the request names
	CheckPermission                // whether creator and scope grant the permission that is asked for
	CheckPassed                    // none has failed
)

// String returns the name by which answers call the check.
func (c Check) String() string {
	return [...]string{
		"parse", "lookup", "revoked", "expired", "creator", "plan", "rate_limit", "organization", "permission", "passed",
	}[c]
}

// CredentialState is a credential with all that decides whether it may be used, in whatever state it is. Its Permissions are
// what it would have if it may.
type CredentialState struct {
	Principal
	Member  bool   // whether its user still belongs to its organization
	Role    string // of the user there; empty for who does not belong
	Granted Scope  // by that role, before a key's scope narrows it
}

// Failed returns the first check from CheckRevoked to CheckCreator that the credential fails at now, in milliseconds since the
// epoch, or CheckPassed.
func (s CredentialState) FailedCheck(now int64) Check {
	status := Active
	switch {
	case s.Key != nil:
		status = s.Key.Status(now)
	case s.Token != nil:
		status = s.Token.Status(now)
	}
	switch {
	case status == Revoked:
		return CheckRevoked
	case status == Expired:
		return CheckExpired
	case !s.User.IsActive || !s.Member:
		return CheckCreator
	}
	return CheckPassed
}
