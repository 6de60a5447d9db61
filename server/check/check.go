// Package check owns the checks that decide whether a credential may make a request: their order, and the limits on failures and
// on requests. It knows no HTTP and writes no response.
package check

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	"github.com/keyhook/keyhook/limiter"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// checks lists the checks of a credential in the order in which they are made. The first one that fails decides the
// response. A request that fails before the rate limit does not count against it.
// This list is the only one. Requests, forward authentication, verify and explain all run it with Checker.Check.
var checks = [access.CheckPassed]func(*Checker, context.Context, *Run) error{
	access.CheckParse:        (*Checker).parsed,       // 401: the credential has no valid form; 429: too many failures from this address
	access.CheckLookUp:       (*Checker).lookUp,       // 401: the credential is unknown; 429: it is, and its address failed too often
	access.CheckRevoked:      (*Checker).usable,       // 401: it was revoked
	access.CheckExpired:      (*Checker).usable,       // 401: it has expired
	access.CheckCreator:      (*Checker).usable,       // 401: its creator is not active, or no longer a member
	access.CheckAddress:      (*Checker).address,      // 403: the client is in none of the key's networks
	access.CheckPlan:         (*Checker).plan,         // 403: the plan does not include API keys
	access.CheckRateLimit:    (*Checker).rateLimit,    // 429: the key or its organization made too many requests
	access.CheckOrganization: (*Checker).organization, // 404: it may not act in the organization that the request names
	access.CheckPermission:   (*Checker).permission,   // 403: it lacks a permission
}

// Checker makes the checks. Use New.
type Checker struct {
	store    Store
	issuer   Issuer // nil if there is none
	limiter  *limiter.Limiter
	throttle *throttle // of invalid credentials
	outside  *throttle // of failures outside of the checks, so that invalid keys do not stop sign-ins of neighbours
	tokens   *tokenRate
}

// New returns a checker. issuer may be nil. The limiter has the windows of API keys; perSecond is how many requests each
// organization may make in a second with other credentials.
func New(store Store, issuer Issuer, l *limiter.Limiter, perSecond int) *Checker {
	return &Checker{store, issuer, l, newThrottle(), newThrottle(), &tokenRate{perSecond: perSecond}}
}

// Run is one run of the checks. The caller fills in what to check, and the checks fill in the outcome.
type Run struct {
	credential.Presented
	Identity access.Identity // of a credential.SignIn
	Needed   access.Scope    // the permissions that are needed
	AnyOf    access.Scope    // one of these is needed, too; empty needs none
	Last     access.Check    // the last check to make
	Address  netip.Addr      // of the client, for the limit on failures; the zero value has no limit
	Client   netip.Addr      // of whoever presents the credential, for the networks of a key; the zero value is in none
	// Find looks up an API key in any state, to explain what would happen to a request with it. Then nothing is counted, and no
	// use is recorded. If Find is nil, only keys that may be used are found.
	Find func(context.Context) (*access.CredentialState, error)

	// What the checks found out.
	At                 access.Check     // the check that is being made, or that failed
	Principal          access.Principal // from the lookup on
	Authenticated      bool             // Principal is set
	Windowed           bool             // the key has a limit, and Window is set
	Window             limiter.Result   // of the key
	OrganizationWindow limiter.Result   // of all keys of the organization; set if the rate limit was checked
	RetryAfter         time.Duration    // how long to wait after a 429

	state      *access.CredentialState // from Find
	generation uint64                  // of the principals, before the lookup
	foundAt    time.Time
}

// Check makes the checks up to c.Last and returns the error of the first one that fails. c.At tells which one that is. If all
// pass, c.At is the check after the last one.
func (k *Checker) Check(ctx context.Context, c *Run) (err error) {
	for c.At = access.CheckParse; c.At <= c.Last; c.At++ {
		if err = checks[c.At](k, ctx, c); err != nil {
			break
		}
	}
	if c.Authenticated && c.Find == nil {
		use := refusals[fault.KindOf(err)]
		if c.At == access.CheckPassed {
			use.Allowed = 1
		}
		k.store.Used(c.Principal, use)
	}
	return err
}

// refusals are the counts of refused requests. A request for a path or an organization that does not exist is in none.
var refusals = map[fault.Kind]access.KeyUse{fault.Limited: {RateLimited: 1}, fault.Forbidden: {Forbidden: 1}}

// Store is what the checks ask of the store.
type Store interface {
	// PrincipalByKey returns the principal of an API key. It returns Unauthenticated if the key is unknown, revoked or
	// expired, or if its creator may not act. It does not look at the plan.
	PrincipalByKey(ctx context.Context, digest access.Digest) (access.Principal, error)
	// PrincipalByToken is the same for an access token.
	PrincipalByToken(ctx context.Context, digest access.Digest) (access.Principal, error)
	// PrincipalBySession is the same for a session of the console.
	PrincipalBySession(ctx context.Context, digest access.Digest) (access.Principal, error)
	// SwitchOrganization returns the principal of a session in another organization of its user, if the session may act there
	// as a member; otherwise own.
	SwitchOrganization(ctx context.Context, own access.Principal, named string) (access.Principal, error)
	// PrincipalByLink is the same for the session that a sign-in link would start.
	PrincipalByLink(ctx context.Context, digest access.Digest) (access.Principal, error)
	// PrincipalToSignIn is the same for the session of a user whom an issuer names.
	PrincipalToSignIn(ctx context.Context, i access.Identity) (access.Principal, error)
	// PrincipalByIdentity is the same for a user whom an issuer names. named is the organization to act in. It is needed only if neither
	// the issuer nor the user's memberships decide it: then Malformed means that named is empty.
	PrincipalByIdentity(ctx context.Context, i access.Identity, named string) (access.Principal, error)
	// PrincipalOfSystem returns the built-in operator.
	PrincipalOfSystem(ctx context.Context) (access.Principal, error)
	// Organization returns the organization with an id or an external id, or NotFound.
	Organization(ctx context.Context, id string) (access.Organization, error)
	// PrincipalGeneration returns a number that changes whenever a write may have changed a principal.
	PrincipalGeneration() uint64
	// Used records that a credential was used, and the request of an API key by what the checks decided. It does not block.
	Used(p access.Principal, use access.KeyUse)
}

// Issuer verifies the tokens of an identity provider.
type Issuer interface {
	// Verify returns what the issuer says about the holder of the token. Faults: Unauthenticated if the token is not
	// valid, Unavailable if that cannot be found out.
	Verify(ctx context.Context, token access.Credential) (access.Identity, error)
}

// parsed fails if the credential could not be read. A malformed credential counts as a failure of its address. A request
// without a credential does not.
func (k *Checker) parsed(_ context.Context, c *Run) error {
	if f, _ := fault.As(c.Unreadable); f == nil || f.Kind != fault.Unauthenticated || f.Code == credential.CodeMissing {
		return c.Unreadable
	}
	return cmp.Or(k.throttle.count(c), c.Unreadable)
}

// CountFailure counts a failure of an address outside of the checks. It refuses an address that failed there too often.
func (k *Checker) CountFailure(c *Run) error { return k.outside.count(c) }

// TakeBackFailure takes back what CountFailure has counted.
func (k *Checker) TakeBackFailure(address netip.Addr) { k.outside.takeBack(address) }

// lookUp finds the principal of the credential. If its address failed too often, an invalid credential gets the same refusal with and
// without a lookup.
func (k *Checker) lookUp(ctx context.Context, c *Run) error {
	digest := c.Credential.Digest()
	wait, blocked := k.throttle.blocked(c.Address, digest)
	if blocked && !k.throttle.mayLookUp(c.Address) {
		c.RetryAfter = wait
		return errTooManyFailures
	}
	if err := k.findPrincipal(ctx, c); err != nil {
		if fault.KindOf(err) != fault.Unauthenticated {
			return err
		}
		if c.Address.IsValid() {
			k.throttle.failed(c.Address, digest)
		}
		if blocked {
			c.RetryAfter = wait
			return errTooManyFailures
		}
		return err
	}
	c.Authenticated = true
	if c.Address.IsValid() {
		k.throttle.succeeded(digest)
	}
	return nil
}

// findPrincipal reads the principal of the credential. It counts nothing.
func (k *Checker) findPrincipal(ctx context.Context, c *Run) error {
	c.generation, c.foundAt = k.store.PrincipalGeneration(), time.Now()
	switch err := k.readPrincipal(ctx, c, c.Credential.Digest()); {
	case fault.KindOf(err) == fault.Unauthenticated:
		return sameAsMalformed(err, c.Presented)
	case fault.KindOf(err) == fault.Internal && err != nil:
		return fault.New(fault.Unavailable, "storage_unavailable",
			"The credential cannot be checked at the moment; try again later.").Because(err)
	default:
		return err
	}
}

func (k *Checker) readPrincipal(ctx context.Context, c *Run, digest access.Digest) (err error) {
	switch {
	case c.Find != nil:
		c.state, err = c.Find(ctx)
		c.Principal = c.state.Principal
	case c.Kind == credential.Key:
		c.Principal, err = k.store.PrincipalByKey(ctx, digest)
	case c.Kind == credential.Token:
		c.Principal, err = k.store.PrincipalByToken(ctx, digest)
	case c.Kind == credential.Session:
		c.Principal, err = k.store.PrincipalBySession(ctx, digest)
		if named := c.namedOrganization(); named != "" && err == nil {
			c.Principal, err = k.store.SwitchOrganization(ctx, c.Principal, named)
		}
	case c.Kind == credential.Link:
		c.Principal, err = k.store.PrincipalByLink(ctx, digest)
	case c.Kind == credential.SignIn:
		c.Principal, err = k.store.PrincipalToSignIn(ctx, c.Identity)
	case c.Kind == credential.IssuerToken:
		var identity access.Identity
		if identity, err = k.issuer.Verify(ctx, c.Credential); err == nil {
			c.Principal, err = k.store.PrincipalByIdentity(ctx, identity, c.namedOrganization())
		}
	case c.Kind == credential.Socket:
		c.Principal, err = k.store.PrincipalOfSystem(ctx)
	}
	return err
}

// usable makes one of three checks: the key was revoked, it has expired, or its creator is not active. The store makes these
// checks as part of the lookup. Only an explanation finds keys that fail them.
func (k *Checker) usable(_ context.Context, c *Run) error {
	if c.Find == nil || c.state.FailedCheck(time.Now().UnixMilli()) != c.At {
		return nil
	}
	k.peek(c)
	code := map[access.Check]string{
		access.CheckRevoked: "key_revoked", access.CheckExpired: "key_expired", access.CheckCreator: "creator_inactive",
	}[c.At]
	return fault.New(fault.Unauthenticated, code, "This API key may not be used.")
}

// address fails if the key has networks, and the client is in none of them. An explanation may be of requests from anywhere.
func (k *Checker) address(_ context.Context, c *Run) error {
	if c.Principal.Key == nil || c.Principal.Key.AllowedNetworks.Allow(c.Client) || c.Find != nil && !c.Client.IsValid() {
		return nil
	}
	k.peek(c)
	from := "a client without an address"
	if c.Client.IsValid() {
		from = c.Client.String()
	}
	return fault.New(fault.Forbidden, "client_address_not_allowed", "This API key may be used only from its allowed networks, and not from %s; "+
		"use another key, or send the request from one of these networks.", from)
}

// plan fails if the plan of the key's organization does not include API keys.
func (k *Checker) plan(_ context.Context, c *Run) error {
	if c.Principal.Key == nil || c.Principal.Plan.APIKeys {
		return nil
	}
	k.peek(c)
	return fault.New(fault.Forbidden, "plan_capability_required",
		"The organization's plan does not include API keys; ask an operator to change the plan.")
}

// rateLimit counts the request in the window of its key and in that of all keys of the organization. What one of them refuses does not
// use up the other. The plan of the key's own organization has both limits. Other credentials have a rate for each organization; a
// credential that may act in every organization, as the host's own back end, has none.
func (k *Checker) rateLimit(_ context.Context, c *Run) error {
	p := &c.Principal
	if p.Key == nil {
		if p.Can(access.PlatformActAs) {
			return nil
		}
		wait, allowed := k.tokens.take(p.Home.RowID)
		if !allowed {
			c.RetryAfter = wait
			return fault.New(fault.Limited, CodeRateLimited, "The organization's limit of %d requests a second without an API key is used up; "+
				"try again later, or use an API key, which has the limit of the plan.", k.tokens.perSecond)
		}
		return nil
	}
	if p.Plan.RateLimitPerMinute == nil {
		return nil
	}
	limit, organizationLimit, organization := *p.Plan.RateLimitPerMinute, p.Plan.OrganizationRate(), -p.Home.RowID // keys have positive numbers
	c.OrganizationWindow = k.limiter.Peek(organization, organizationLimit)
	counts := c.Find == nil && c.OrganizationWindow.Allowed // a dry run only reads
	if counts {
		c.Windowed, c.Window = true, k.limiter.Take(p.Key.Window, limit)
	} else {
		k.peek(c)
	}
	if !c.Window.Allowed {
		c.RetryAfter = c.Window.Reset
		return fault.New(fault.Limited, CodeRateLimited, "The key's limit of %d requests a minute is used up; "+
			"try again later, or ask an operator for a plan with a higher api_rate_limit_per_minute.", limit)
	}
	if counts {
		c.OrganizationWindow = k.limiter.Take(organization, organizationLimit)
	}
	if !c.OrganizationWindow.Allowed {
		c.RetryAfter = c.OrganizationWindow.Reset
		return fault.New(fault.Limited, CodeRateLimited, "The organization's API keys together made too many requests: their limit "+
			"of %d a minute is used up; try again later.", organizationLimit)
	}
	return nil
}

// peek reads the window of a key that is refused before the rate limit, because the response shows the window too.
func (k *Checker) peek(c *Run) {
	if limit := c.Principal.Plan.RateLimitPerMinute; limit != nil {
		c.Windowed, c.Window = true, k.limiter.Peek(c.Principal.Key.Window, *limit)
	}
}

// namedOrganization returns the organization that the request names; empty unless it is exactly one. The organization check refuses several.
func (c *Run) namedOrganization() string {
	if len(c.Organizations) == 1 {
		return c.Organizations[0]
	}
	return ""
}

// organization has the principal act in the named organization. For a principal that may not act in others, they do not exist.
func (k *Checker) organization(ctx context.Context, c *Run) error {
	named := c.namedOrganization()
	switch {
	case !access.IsVisible(named):
		return fault.New(fault.Malformed, form.CodeInvalidParameter,
			"The header %s has other than visible ASCII characters; send the id of the organization, org_….", credential.OrganizationHeader)
	case len(c.Organizations) == 0 || len(c.Organizations) == 1 && c.Principal.Home.IsNamed(named):
		return nil
	case len(c.Organizations) > 1:
		return fault.New(fault.Malformed, form.CodeInvalidParameter, "The header %s occurs more than once; send it once.", credential.OrganizationHeader)
	case !c.Principal.Can(access.PlatformActAs):
		return fault.New(fault.NotFound, "not_found", "There is no such organization for this credential, which acts only in its own. "+
			"Leave the header %s out.", credential.OrganizationHeader)
	}
	o, err := k.store.Organization(ctx, named)
	if err != nil {
		return err
	}
	c.Principal = c.Principal.In(o)
	return nil
}

// permission fails if the principal lacks a permission that is needed.
func (k *Checker) permission(_ context.Context, c *Run) error {
	return cmp.Or(c.Principal.Permit(c.Needed), c.Principal.PermitAny(c.AnyOf))
}

// CodeRateLimited is the code of a request that a window refuses.
const CodeRateLimited = "rate_limited"

// errTooManyFailures refuses an address, or an invalid credential of it.
var errTooManyFailures = fault.New(fault.Limited, "too_many_failures",
	"Too many failed authentications from this address; try again later.")

// sameAsMalformed gives an unknown credential the same response as a malformed one. The message of the issuer says no more
// than ours, and it has a cause for the log.
func sameAsMalformed(err error, p credential.Presented) error {
	if e, _ := fault.As(err); e.Code == credential.CodeUnknown {
		return cmp.Or(malformed[p.Kind], err)
	}
	return err
}

var malformed = map[credential.Kind]error{
	credential.Key: credential.ErrKey, credential.Token: credential.ErrToken,
	credential.Session: credential.ErrSession, credential.Link: credential.ErrLink,
}

const freshFor = time.Second // a passed check holds so long, unless a principal changes; the credential may expire meanwhile

// Recheck makes the checks again after a part of the request that took time, such as its body, because the credential may be withdrawn.
// The request was counted by Check, so Recheck counts nothing. If no principal has changed, it costs the comparison of two numbers.
func (k *Checker) Recheck(ctx context.Context, c *Run) error {
	if c.generation == k.store.PrincipalGeneration() && time.Since(c.foundAt) < freshFor {
		return nil
	}
	c.At = access.CheckLookUp
	before := c.Principal
	if err := k.findPrincipal(ctx, c); err != nil {
		c.Principal = before // so that the log names it
		return err
	}
	for _, c.At = range [...]access.Check{access.CheckPlan, access.CheckOrganization, access.CheckPermission} {
		if err := checks[c.At](k, ctx, c); err != nil {
			return err
		}
	}
	c.At = access.CheckPassed
	return nil
}
