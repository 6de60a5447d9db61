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
