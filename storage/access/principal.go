package access

import (
	"strings"

	"github.com/keyhook/keyhook/storage/fault"
)

// Principal is the user and the organization that a request acts for, with the permissions of its credential. It is a
// snapshot and never changes.
type Principal struct {
	User         User
	Organization Organization // the organization acted in
	Home         Organization // the credential's own organization; differs only with PlatformActAs
	Plan         Plan         // of Home; its limits apply to the credential
	Permissions  Scope        // permissions of the role, narrowed by the key's scope, or by the role of a portal session
	Key          *Key         // nil unless authenticated by a key
	Token        *AccessToken // nil unless authenticated by an access token, or by a session of one
	Session      *Session     // nil unless authenticated by a session
}

// Can reports whether the principal has the permission. Permissions are already narrowed.
func (p Principal) Can(permission string) bool { return p.Permissions.Has(permission) }

// CodeTooManyChanges is the code of a document that changes more than one request may. Nothing of it was applied.
const CodeTooManyChanges = "too_many_changes"

// CodeDenied is the code of a request that lacks a permission.
const CodeDenied = "permission_denied"

// Permit returns a Forbidden fault if the principal lacks one of the needed permissions.
func (p Principal) Permit(needed Scope) error {
	if p.Permissions.HasAll(needed) {
		return nil
	}
	keys := needed.Minus(p.Permissions).Keys()
	if len(keys) == 1 {
		return denied("the permission " + keys[0])
	}
	return denied("the permissions " + strings.Join(keys, ", "))
}

// PermitAny returns a Forbidden fault if the principal has none of these permissions, unless there are none.
func (p Principal) PermitAny(of Scope) error {
	if of.Empty() || !of.Intersect(p.Permissions).Empty() {
		return nil
	}
	return denied("one of the permissions " + strings.Join(of.Keys(), ", "))
}

func denied(missing string) error {
	return fault.New(fault.Forbidden, CodeDenied,
		"This needs %s. Ask an operator for a role that grants this; an API key needs it in its scope too.", missing)
}

// Issued returns the key or the access token; nil if the principal has neither.
func (p *Principal) Issued() *Issued {
	switch {
	case p.Key != nil:
		return &p.Key.Issued
	case p.Token != nil:
		return &p.Token.Issued
	}
	return nil
}

// In returns the principal acting in another organization. The caller must check Can(PlatformActAs) first.
func (p Principal) In(o Organization) Principal {
	p.Organization = o
	return p
}

// Authority names the credential of an actor, mostly by row ids. A transaction reads the present permissions of the actor with
// it, because they may have changed since the request began.
type Authority struct {
	User    int64
	Home    int64  // the credential's own organization
	Key     int64  // 0 unless the credential is an API key
	Token   int64  // 0 unless the credential is an access token, or a session of one
	Session string // public id; empty unless the credential is a session. Another session may get the row id of one that ended
}

// Authority returns the row ids of the principal's credential.
func (p Principal) Authority() Authority {
	a := Authority{User: p.User.RowID, Home: p.Home.RowID}
	if p.Key != nil {
		a.Key = p.Key.RowID
	}
	if p.Token != nil {
		a.Token = p.Token.RowID
	}
	if p.Session != nil {
		a.Session = p.Session.ID
	}
	return a
}

// Actor returns the principal as the audit log shows it, for a request from ip.
func (p Principal) Actor(ip, requestID string) Actor {
	a := Actor{
		Type: "user", ID: p.User.ID, Name: p.User.Name, Organization: p.Organization.RowID, IP: ip, RequestID: requestID,
		Authority: p.Authority(),
	}
	switch {
	case p.Key != nil:
		a.Type, a.ID, a.Name = "api_key", p.Key.ID, p.Key.Name
	case p.Session.IsPortal():
		a.Type, a.ID, a.Name = "portal", p.Session.ID, "Portal ("+p.Session.Role+")"
	case p.User.BuiltIn:
		a.Type = "system"
	}
	return a
}

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
	if i := s.Issued(); i != nil {
		status = i.Status(now)
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
