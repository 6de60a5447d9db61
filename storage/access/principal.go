package access

// Principal is who a request acts for: a user in an organization, by a token or narrowed by a key. It is a snapshot and
// is not changed once made.
type Principal struct {
	User         User
	Organization Organization // the one acted in
	Home         Organization // the credential's own; differs only for those who may act in another
	Plan         Plan         // of Home: it governs the credential
	Permissions  Scope        // effective: what the role grants now, narrowed by the key's scope
	Key          *Key         // nil unless authenticated by a key
	Token        *AccessToken // nil unless authenticated by an access token, or by a session got with it
	Session      *Session     // nil unless authenticated by a session
}

// Can reports whether the principal holds the permission. A key can never do more than its scope, because Permissions
// is narrowed already.
func (p Principal) Can(permission string) bool { return p.Permissions.Has(permission) }

// In returns the principal acting in another organization. Whether it may is for the caller to ask with
// Can(PlatformActAs).
func (p Principal) In(o Organization) Principal {
	p.Organization = o
	return p
}

// Authority names, by row ids, the credential that an actor acts by. A transaction reads by it what the actor holds at
// that moment, because the credential or the role may have changed since the request began.
type Authority struct {
	User  int64
	Home  int64 // the credential's own organization
	Key   int64 // 0 unless the credential is an API key
	Token int64 // 0 unless the credential is an access token, or a session of one
}

// Authority returns what the principal acts by.
func (p Principal) Authority() Authority {
	a := Authority{User: p.User.RowID, Home: p.Home.RowID}
	if p.Key != nil {
		a.Key = p.Key.RowID
	}
	if p.Token != nil {
		a.Token = p.Token.RowID
	}
	return a
}

// Actor returns the principal as the audit log names it, for a request from ip.
func (p Principal) Actor(ip, requestID string) Actor {
	a := Actor{
		Type: "user", ID: p.User.ID, Name: p.User.Name, Organization: p.Organization.RowID, IP: ip, RequestID: requestID,
		Authority: p.Authority(),
	}
	switch {
	case p.Key != nil:
		a.Type, a.ID, a.Name = "api_key", p.Key.ID, p.Key.Name
	case p.User.BuiltIn:
		a.Type = "system"
	}
	return a
}
