package server

import (
	"context"
	"strings"

	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// trial is a credential before the checks, what is asked of it, and how far it has come.
type trial struct {
	at        access.Check // made next; the one that has failed where one has
	digest    access.Digest
	principal access.Principal // once looked up
	quiet     bool             // to look at the window and leave it as it is
	windowed  bool             // whether there is a window, and it has been looked at
	window    limiter.Result   // of the key
	last      limiter.Result   // of the window that was looked at last: the one that refuses, where one does
	named     []string         // the organizations that the request names; none is the credential's own
	wanted    access.Scope     // the permissions that are asked for
}

// lookUp puts the credential with that digest on trial, which has passed the first check: it could be read.
func (t *trial) lookUp(digest access.Digest) *trial {
	t.at, t.digest = access.CheckLookUp, digest
	return t
}

// judge makes the checks that remain, in the order in which access lists them, up to and with last; the first that fails
// ends it. All who judge a key come by here: its own request, a proxy, a back end that verifies it, and who wants to have
// explained what it would be told.
func (s *Server) judge(ctx context.Context, t *trial, last access.Check) error {
	for ; t.at <= last; t.at++ {
		if err := s.check(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) check(ctx context.Context, t *trial) (err error) {
	switch t.at {
	case access.CheckLookUp:
		t.principal, err = s.store.PrincipalByKey(ctx, t.digest)
	case access.CheckRevoked, access.CheckExpired, access.CheckCreator:
		// The store makes these together with the look-up: see access.CredentialState.
	case access.CheckPlan:
		if !t.principal.Plan.APIKeys {
			s.peek(t)
			err = errPlan
		}
	case access.CheckRateLimit:
		err = s.take(t)
	case access.CheckOrganization:
		err = s.actFor(ctx, t)
	case access.CheckPermission:
		if !t.principal.Permissions.HasAll(t.wanted) {
			err = denied(t.wanted.Minus(t.principal.Permissions))
		}
	}
	return err
}

// organizationHeader names the organization to act in, where it is not the credential's own.
const organizationHeader = "X-Organization-Id"

// actFor puts the principal into the organization that is named. To anyone who may not act in others, they do not exist.
func (s *Server) actFor(ctx context.Context, t *trial) error {
	if len(t.named) == 0 || len(t.named) == 1 && t.named[0] == t.principal.Home.ID {
		return nil
	}
	if len(t.named) > 1 {
		return fault.New(fault.Malformed, form.CodeInvalidParameter, "The header %s may be given once.", organizationHeader)
	}
	if !t.principal.Can(access.PlatformActAs) || !organizationID.Valid(t.named[0]) {
		return fault.Missing(anOrg)
	}
	o, err := s.store.OrganizationByID(ctx, t.named[0])
	if err != nil {
		return err
	}
	t.principal = t.principal.In(o)
	return nil
}

// getPermission says what to do for want of permissions.
const getPermission = " Ask an operator for a role that grants this; an API key needs it in its scope too."

// denied refuses for want of permissions; there is one at least.
func denied(missing access.Scope) error {
	keys := missing.Keys()
	if len(keys) == 1 {
		return fault.New(fault.Forbidden, codeDenied, "This needs the permission %s."+getPermission, keys[0])
	}
	return fault.New(fault.Forbidden, codeDenied, "This needs the permissions %s."+getPermission, strings.Join(keys, ", "))
}
