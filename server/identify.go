package server

import (
	"context"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// means is by what sort of credential a request says who asks.
type means uint8

const (
	byKey     means = 1 + iota // an API key
	byToken                    // an access token
	byIssuer                   // a token of the identity provider
	bySession                  // the cookie of a session
)

// Issuer verifies the tokens of an identity provider.
type Issuer interface {
	// Verify returns what the issuer says of whoever holds the token. Faults: Unauthenticated where the token does not
	// hold, Unavailable where that cannot be found out.
	Verify(ctx context.Context, token access.Credential) (access.Identity, error)
}

// identify finds out whom a credential stands for. Before the look-up stands the throttle, which is about the address and
// not about the credential: failures are counted, and after too many nothing more is looked up.
func (s *Server) identify(c *call, credential access.Credential, by means) error {
	digest := credential.Digest()
	if wait, blocked := s.throttle.blocked(c.client, digest); blocked {
		return tooManyFailures(c, wait)
	}
	err := s.find(c, credential, by)
	if fault.KindOf(err) == fault.Unauthenticated {
		s.throttle.failed(c.client, digest)
		if by == bySession {
			s.clearCookie(c)
		}
		return uniform(err, by)
	}
	if err != nil {
		return unreadable(err)
	}
	s.throttle.proved(digest)
	c.authenticated = true
	s.store.Used(c.principal)
	return nil
}

// find asks the store, and before that, for a token of the issuer's, the issuer. Of a key it makes all checks that come
// before the plan.
func (s *Server) find(c *call, credential access.Credential, by means) (err error) {
	ctx, digest := c.request.Context(), credential.Digest()
	switch by {
	case byKey:
		err = s.judge(ctx, c.lookUp(digest), access.CheckCreator)
	case byToken:
		c.principal, err = s.store.PrincipalByToken(ctx, digest)
	case bySession:
		c.principal, err = s.store.PrincipalBySession(ctx, digest)
	case byIssuer:
		var identity access.Identity
		if identity, err = s.issuer.Verify(ctx, credential); err == nil {
			c.principal, err = s.store.PrincipalByIdentity(ctx, identity, named(c))
		}
	}
	return err
}

// named returns the organization that the request names; empty where it names none, or several, which actFor refuses.
func named(c *call) string {
	if values := c.request.Header[organizationHeader]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// foreign reads a token of the issuer's.
func foreign(raw string) (access.Credential, error) {
	c, ok := access.Foreign(raw)
	if !ok {
		return c, errToken
	}
	return c, nil
}

// uniform gives a credential that is unknown the very answer that a malformed one gets.
func uniform(err error, by means) error {
	switch e, _ := fault.As(err); {
	case e.Code != codeUnknown:
		return err
	case by == byKey:
		return errKey
	case by == byToken:
		return errToken
	case by == bySession:
		return errSession
	}
	return err // the issuer's says no more than ours, and has a cause for the log
}

// unreadable tells a caller whose credential could not be looked up to try again: it may well be a good one.
func unreadable(err error) error {
	if fault.KindOf(err) != fault.Internal {
		return err
	}
	return fault.New(fault.Unavailable, "storage_unavailable",
		"The credential cannot be checked at the moment; try again later.").Because(err)
}
