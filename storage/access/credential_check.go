package access

// Check is one of the checks that Keyhook makes for every use of an API key.
type Check uint8

// The checks of an API key, in their order. The order is the same for requests, for questions of a proxy or a back
// end, and for explanations. The first check that fails decides the response, and the later ones are not
// made. A request that fails before CheckRateLimit does not count against the window.
const (
	CheckParse        Check = iota // the form and the checksum are right
	CheckLookUp                    // the key exists
	CheckRevoked                   // the key is not revoked
	CheckExpired                   // the key has not expired
	CheckCreator                   // the creator is active and still a member of the organization
	CheckAddress                   // the address of the client is in the networks of the key
	CheckPlan                      // the plan of the organization includes API keys
	CheckRateLimit                 // the windows of the key and of its organization have room; the request is counted here
	CheckOrganization              // the key may act in the organization that the request names
	CheckPermission                // creator and scope grant the required permission
	CheckPassed                    // all checks passed
)

// String returns the name of the check in responses.
func (c Check) String() string {
	return [...]string{
		"parse", "lookup", "revoked", "expired", "creator", "client_address", "plan", "rate_limit", "organization", "permission", "passed",
	}[c]
}

// CredentialState is a credential with everything that decides whether it is valid, even if it is not. Its Permissions are
// those that it has while it is valid.
type CredentialState struct {
	Principal
	Member  bool   // whether the user is still a member of the organization
	Role    string // of the user in the organization; empty if not a member
	Granted Scope  // permissions of the role, before a key's scope narrows them
}

// FailedCheck returns the first check from CheckRevoked to CheckCreator that the credential fails at now, in milliseconds since the
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
