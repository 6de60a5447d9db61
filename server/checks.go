package server

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// checks lists the checks of a credential in the order in which they are made. The first one that fails decides the
// response. A request that fails before the rate limit does not count against it.
//
// This list is the only one. Requests, forward authentication, verify and explain all run it with checker.check.
var checks = [access.CheckPassed]func(*checker, context.Context, *credentialCheck) error{
	access.CheckParse:        (*checker).parsed,       // 401: the credential has no valid form; 429: too many failures from this address
	access.CheckLookUp:       (*checker).lookUp,       // 401: the credential is unknown; 429: too many failures from this address
	access.CheckRevoked:      (*checker).usable,       // 401: it was revoked
	access.CheckExpired:      (*checker).usable,       // 401: it has expired
	access.CheckCreator:      (*checker).usable,       // 401: its creator is not active, or no longer a member
	access.CheckPlan:         (*checker).plan,         // 403: the plan does not include API keys
	access.CheckRateLimit:    (*checker).rateLimit,    // 429: the key or its organization made too many requests
	access.CheckOrganization: (*checker).organization, // 404: it may not act in the organization that the request names
	access.CheckPermission:   (*checker).permission,   // 403: it lacks a permission
}

// check makes the checks up to c.last and returns the error of the first one that fails. c.at tells which one that is.
// If all pass, c.at is the check after the last one.
func (k *checker) check(ctx context.Context, c *credentialCheck) error {
	for c.at = access.CheckParse; c.at <= c.last; c.at++ {
		if err := checks[c.at](k, ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// credentialCheck is one credential on its way through the checks. The caller fills in the fields, the checks the outcome.
type credentialCheck struct {
	kind          credentialKind
	credential    access.Credential
	unreadable    error        // why the credential could not be read; nil if it was
	organizations []string     // that the request names; none means the credential's own
	needed        access.Scope // the permissions that are needed
	last          access.Check // the last check to make
	address       netip.Addr   // of the client, for the limit on failures
	throttled     bool         // failures count against the address
	dryRun        bool         // nothing is counted, and no use is recorded
	// find looks up an API key in any state, for an explanation, which sets state too. If find is nil, only keys that may be
	// used are found.
	find  func(context.Context) (access.CredentialState, error)
	state *access.CredentialState

	checkOutcome
}

// checkOutcome is what the checks found out.
type checkOutcome struct {
	at                 access.Check     // the check that is being made, or that failed
	principal          access.Principal // from the look-up on
	authenticated      bool             // principal is set
	windowed           bool             // the key has a limit, and window is set
	window             limiter.Result   // of the key
	organizationWindow limiter.Result   // of all keys of the organization; set if window allowed the request
	retryAfter         time.Duration    // how long to wait after a 429
}

// credentialKind is the kind of credential that a request was made with.
type credentialKind uint8

const (
	keyCredential     credentialKind = 1 + iota // an API key
	tokenCredential                             // an access token
	issuerCredential                            // a token of the identity provider
	sessionCredential                           // the cookie of a session
	socketCredential                            // none: the request came over the local socket
)

// checker has what the checks need. It knows nothing of HTTP.
type checker struct {
	store    principalStore
	issuer   Issuer // nil if there is none
	limiter  *limiter.Limiter
	throttle *throttle
	tokens   *tokenRate
}

// principalStore is what the checks ask of the store.
type principalStore interface {
	// PrincipalByKey returns the principal of an API key. It returns Unauthenticated if the key is unknown, revoked or
	// expired, or if its creator may not act. It does not look at the plan.
	PrincipalByKey(ctx context.Context, digest access.Digest) (access.Principal, error)
	// PrincipalByToken is the same for an access token.
	PrincipalByToken(ctx context.Context, digest access.Digest) (access.Principal, error)
	// PrincipalBySession is the same for a session of the console.
	PrincipalBySession(ctx context.Context, digest access.Digest) (access.Principal, error)
	// PrincipalByIdentity is the same for a user whom an issuer names. named is the organization to act in. It is needed
	// only if neither the issuer nor the user's memberships decide it: then NotFound means that the user is no member, and
	// Malformed that named is empty.
	PrincipalByIdentity(ctx context.Context, i access.Identity, named string) (access.Principal, error)
	// PrincipalOfSystem returns the built-in operator.
	PrincipalOfSystem(ctx context.Context) (access.Principal, error)
	// OrganizationByID returns an organization, or NotFound.
	OrganizationByID(ctx context.Context, id string) (access.Organization, error)
	// Used records that a credential was used. It does not block.
	Used(p access.Principal)
}

// Issuer verifies the tokens of an identity provider.
type Issuer interface {
	// Verify returns what the issuer says about the holder of the token. Faults: Unauthenticated if the token is not
	// valid, Unavailable if that cannot be found out.
	Verify(ctx context.Context, token access.Credential) (access.Identity, error)
}

// parsed fails if the credential could not be read. A malformed credential counts as a failure of its address. A request
// without a credential does not.
func (k *checker) parsed(_ context.Context, c *credentialCheck) error {
	if !c.throttled || !isGuess(c.unreadable) {
		return c.unreadable
	}
	if wait, blocked := k.throttle.blocked(c.address, access.Digest{}); blocked {
		c.retryAfter = wait
		return errTooManyFailures
	}
	k.throttle.failed(c.address, access.Digest{})
	return c.unreadable
}

// lookUp finds the principal of the credential. If its address failed too often, the credential is refused without a
// look-up.
func (k *checker) lookUp(ctx context.Context, c *credentialCheck) error {
	digest := c.credential.Digest()
	if c.throttled {
		if wait, blocked := k.throttle.blocked(c.address, digest); blocked {
			c.retryAfter = wait
			return errTooManyFailures
		}
	}
	err := k.findPrincipal(ctx, c, digest)
	switch {
	case fault.KindOf(err) == fault.Unauthenticated:
		if c.throttled {
			k.throttle.failed(c.address, digest)
		}
		return sameAsMalformed(err, c.kind)
	case fault.KindOf(err) == fault.Internal && err != nil:
		return fault.New(fault.Unavailable, "storage_unavailable",
			"The credential cannot be checked at the moment; try again later.").Because(err)
	case err != nil:
		return err
	}
	c.authenticated = true
	if c.throttled {
		k.throttle.succeeded(digest)
	}
	if !c.dryRun {
		k.store.Used(c.principal)
	}
	return nil
}

func (k *checker) findPrincipal(ctx context.Context, c *credentialCheck, digest access.Digest) (err error) {
	switch {
	case c.find != nil:
		*c.state, err = c.find(ctx)
		c.principal = c.state.Principal
	case c.kind == keyCredential:
		c.principal, err = k.store.PrincipalByKey(ctx, digest)
	case c.kind == tokenCredential:
		c.principal, err = k.store.PrincipalByToken(ctx, digest)
	case c.kind == sessionCredential:
		c.principal, err = k.store.PrincipalBySession(ctx, digest)
	case c.kind == issuerCredential:
		var identity access.Identity
		if identity, err = k.issuer.Verify(ctx, c.credential); err == nil {
			c.principal, err = k.store.PrincipalByIdentity(ctx, identity, c.namedOrganization())
		}
	case c.kind == socketCredential:
		c.principal, err = k.store.PrincipalOfSystem(ctx)
	}
	return err
}

// usable fails if the key was revoked, has expired, or has a creator who may not act: three checks, one at a time. The store
// makes them as part of the look-up. Only an explanation finds keys that fail them.
func (k *checker) usable(_ context.Context, c *credentialCheck) error {
	if c.find == nil || c.state.FailedCheck(time.Now().UnixMilli()) != c.at {
		return nil
	}
	k.peek(c)
	code := "key_revoked"
	switch c.at {
	case access.CheckExpired:
		code = "key_expired"
	case access.CheckCreator:
		code = "creator_inactive"
	}
	return fault.New(fault.Unauthenticated, code, "This API key may not be used.")
}

// plan fails if the plan of the key's organization does not include API keys.
func (k *checker) plan(_ context.Context, c *credentialCheck) error {
	if c.principal.Key == nil || c.principal.Plan.APIKeys {
		return nil
	}
	k.peek(c)
	return errPlan
}

// rateLimit counts the request in the window of its key and then in that of all keys of the organization. Both limits are
// those of the key's own organization. Other credentials have a rate for each organization; a credential that may act in
// every organization, as the host's own back end, has none.
func (k *checker) rateLimit(_ context.Context, c *credentialCheck) error {
	p := &c.principal
	if p.Key == nil {
		if p.Can(access.PlatformActAs) {
			return nil
		}
		wait, allowed := k.tokens.take(p.Home.RowID)
		if !allowed {
			c.retryAfter = wait
			return fault.New(fault.Limited, codeRateLimited, "The organization's limit of %d requests a second without an API key is used up; "+
				"try again later, or use an API key, which has the limit of the plan.", k.tokens.perSecond)
		}
		return nil
	}
	if p.Plan.RateLimitPerMinute == nil {
		return nil
	}
	limit := *p.Plan.RateLimitPerMinute
	c.windowed, c.window = true, k.count(c, p.Key.Window, limit)
	if !c.window.Allowed {
		c.retryAfter = c.window.Reset
		return fault.New(fault.Limited, codeRateLimited, "The key's limit of %d requests a minute is used up; "+
			"try again later, or ask an operator for a plan with a higher api_rate_limit_per_minute.", limit)
	}
	organizationLimit := p.Plan.OrganizationRate()
	c.organizationWindow = k.count(c, organizationWindow(p.Home), organizationLimit)
	if !c.organizationWindow.Allowed {
		c.retryAfter = c.organizationWindow.Reset
		return fault.New(fault.Limited, codeRateLimited, "The organization's API keys together made too many requests: their limit "+
			"of %d a minute is used up; try again later.", organizationLimit)
	}
	return nil
}

// count counts a request in a window. A dry run only reads the window.
func (k *checker) count(c *credentialCheck, window, limit int64) limiter.Result {
	if c.dryRun {
		return k.limiter.Peek(window, limit)
	}
	return k.limiter.Take(window, limit)
}

// organizationWindow is the window of all keys of an organization. The windows of keys are positive numbers.
func organizationWindow(o access.Organization) int64 { return -o.RowID }

// peek reads the window of a key that is refused before the rate limit, because the response shows it all the same.
func (k *checker) peek(c *credentialCheck) {
	if limit := c.principal.Plan.RateLimitPerMinute; limit != nil {
		c.windowed, c.window = true, k.limiter.Peek(c.principal.Key.Window, *limit)
	}
}

// organizationHeader names the organization to act in, if it is not the credential's own.
const organizationHeader = "X-Organization-Id"

// namedOrganization returns the organization that the request names. It is empty if there is none. It is also empty if there
// are several: the organization check refuses those.
func (c *credentialCheck) namedOrganization() string {
	if len(c.organizations) == 1 {
		return c.organizations[0]
	}
	return ""
}

// organization has the principal act in the named organization. For a principal that may not act in others, they do not
// exist.
func (k *checker) organization(ctx context.Context, c *credentialCheck) error {
	named := c.namedOrganization()
	switch {
	case len(c.organizations) == 0 || len(c.organizations) == 1 && named == c.principal.Home.ID:
		return nil
	case len(c.organizations) > 1:
		return fault.New(fault.Malformed, form.CodeInvalidParameter, "The header %s may be given once.", organizationHeader)
	case !c.principal.Can(access.PlatformActAs) || !organizationID.Valid(named):
		return fault.Missing(anOrg)
	}
	o, err := k.store.OrganizationByID(ctx, named)
	if err != nil {
		return err
	}
	c.principal = c.principal.In(o)
	return nil
}

// permission fails if the principal lacks one of the needed permissions.
func (k *checker) permission(_ context.Context, c *credentialCheck) error {
	if c.principal.Permissions.HasAll(c.needed) {
		return nil
	}
	const advice = " Ask an operator for a role that grants this; an API key needs it in its scope too."
	keys := c.needed.Minus(c.principal.Permissions).Keys()
	if len(keys) == 1 {
		return fault.New(fault.Forbidden, codeDenied, "This needs the permission %s."+advice, keys[0])
	}
	return fault.New(fault.Forbidden, codeDenied, "This needs the permissions %s."+advice, strings.Join(keys, ", "))
}

// isRefusal reports whether err refuses the credential itself. Any other error means that a check could not be made.
func isRefusal(err error) bool {
	switch fault.KindOf(err) {
	case fault.Unauthenticated, fault.Forbidden, fault.Limited:
		return true
	}
	return false
}
