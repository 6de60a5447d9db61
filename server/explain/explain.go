// Package explain owns two explanations. Of a request with an API key: for each check, the checked value, whether the key passes, and what
// to do if it fails. Of an event: what happened on its way to a subscription, and what to do. It also owns the table that makes a sentence
// and a command of a code (mend.go). It makes no check itself, and knows no request and no store. Its mends name paths of the API.
package explain

import (
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/server/check"
	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// Request is the request to explain, after the run of the checks.
type Request struct {
	check.Run
	State   access.CredentialState // of the key; the zero value if it was not found
	ByID    bool                   // the key was named by its id
	Length  int                    // of the key, in bytes, if it was not named by its id
	Unknown access.Scope           // needed permissions that do not exist; set if the permission check failed
	Open    bool                   // Keyhook's own route for the path reads no credential
	Foreign bool                   // Keyhook has no route for the path and the method
}

// Check is one check. Value is what it looked at; empty if there was nothing.
type Check struct {
	Check   string `json:"check"`
	Value   string `json:"value"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
}

// Verdicts.
const (
	verdictPassed        = "passed"
	verdictFailed        = "failed"
	verdictNotReached    = "not_reached"    // an earlier check failed, so this one was not made
	verdictNotApplicable = "not_applicable" // nothing is needed that could fail
)

// Checks describes all checks, in order.
func (r *Request) Checks() []Check {
	var checks []Check
	for c := range access.CheckPassed { // from CheckParse on
		checks = append(checks, r.describe(c))
	}
	return checks
}

func (r *Request) describe(c access.Check) Check {
	value, passed, failed := r.factsOf(c)
	b := Check{Check: c.String(), Value: value}
	switch {
	case r.Open:
		b.Verdict, b.Detail = verdictNotApplicable, "This route reads no credential."
	case c > r.At:
		b.Verdict, b.Detail = verdictNotReached, "An earlier check failed, so this check was not made."
	case c == r.At:
		b.Verdict, b.Detail = verdictFailed, failed
	case c == access.CheckParse && r.ByID, c == access.CheckAddress && (len(r.State.Key.AllowedNetworks) == 0 || !r.Client.IsValid()), c == access.CheckOrganization, c == access.CheckPermission && r.Permissions().Empty():
		b.Verdict, b.Detail = verdictNotApplicable, passed
	default:
		b.Verdict, b.Detail = verdictPassed, passed
	}
	return b
}

// factsOf returns the value that a check looked at, the text if it passed or does not apply, and the text if it failed.
func (r *Request) factsOf(c access.Check) (value, passed, failed string) {
	if c > access.CheckLookUp && r.State.Key == nil {
		return "", "", "" // the key was not found
	}
	switch c {
	case access.CheckParse:
		return r.parseFacts()
	case access.CheckLookUp:
		return r.lookUpFacts()
	case access.CheckRevoked:
		at := timeOrNever(r.State.Key.RevokedAt)
		return at, "The key has not been revoked.",
			"The key was revoked, and that is final. Create another key: POST /api/v1/api-keys/."
	case access.CheckExpired:
		at := timeOrNever(r.State.Key.ExpiresAt)
		return at, "The key has not expired.",
			"The key has expired. Create another key with a later expires_at or none: POST /api/v1/api-keys/."
	case access.CheckCreator:
		return r.creatorFacts()
	case access.CheckAddress:
		return r.addressFacts()
	case access.CheckPlan:
		return r.planFacts()
	case access.CheckRateLimit:
		return r.rateLimitFacts()
	case access.CheckOrganization:
		return r.State.Home.ID, "The key acts in its own organization unless the request has the header " + credential.OrganizationHeader +
			". Resources of other organizations are not found: 404.", ""
	case access.CheckPermission:
		return r.permissionFacts()
	}
	return "", "", ""
}

func timeOrNever(at *int64) string {
	if at == nil {
		return "never"
	}
	return string(webhook.AppendTime(nil, *at))
}

func (r *Request) parseFacts() (value, passed, failed string) {
	switch {
	case r.ByID:
		return "", "The key was named by its id or prefix, so there is no raw key to check.", ""
	case r.Unreadable == nil:
		return r.Credential.Display(), "The form and the checksum are valid.", ""
	}
	malformed, _ := fault.As(r.Unreadable)
	return fmt.Sprintf("%d characters", r.Length), "", malformed.Message
}

func (r *Request) lookUpFacts() (value, passed, failed string) {
	const unknown = "There is no such key in an organization that you may read. Look for its prefix in GET /api/v1/api-keys/?status=all, or create another key: POST /api/v1/api-keys/."
	if r.State.Key == nil {
		return "", "", unknown
	}
	return r.State.Key.ID, fmt.Sprintf("The key is %q of the organization %q.", r.State.Key.Name, r.State.Home.Name), unknown
}

func (r *Request) creatorFacts() (value, passed, failed string) {
	s := r.State
	switch {
	case !s.User.IsActive:
		failed = fmt.Sprintf("The creator, %s, is not active. Activate the user: PATCH /api/v1/users/%s/ {\"is_active\": true}. "+
			"Or let another member create a key.", s.User.Label(), s.User.ID)
	case !s.Member:
		failed = fmt.Sprintf("The creator, %s, is no longer a member of the organization. Add the user again: "+
			"PUT /api/v1/organizations/%s/members/%s/ {\"role\": \"member\"}. Or let a member create a key.", s.User.Label(), s.Home.ID, s.User.ID)
	}
	return s.User.ID, fmt.Sprintf("The creator, %s, is active and a member with the role %s.", s.User.Label(), s.Role), failed
}

func (r *Request) addressFacts() (value, passed, failed string) {
	value = r.State.Key.AllowedNetworks.String()
	switch {
	case value == "":
		return "", "The key may be used from any address.", ""
	case !r.Client.IsValid():
		return value, "The key may be used only from these networks. To check an address, name it in \"client_ip\".", ""
	}
	return value, "The key may be used from " + r.Client.String() + ".",
		"The key may be used only from these networks, and not from " + r.Client.String() + ". The networks of a key never change. Create another key: POST /api/v1/api-keys/. " +
			"If this is the address of your proxy, and not of its client, add the proxy to server.trusted_proxies."
}

func (r *Request) planFacts() (value, passed, failed string) {
	name := r.State.Plan.Name
	return name, "The plan " + name + " includes API keys.",
		fmt.Sprintf("The plan %s does not include API keys. Move the organization to one that does: PATCH /api/v1/organizations/%s/ {\"plan\": \"%s\"}.",
			name, r.State.Home.ID, unknownPlan)
}

func (r *Request) rateLimitFacts() (value, passed, failed string) {
	limit, plan := r.State.Plan.RateLimitPerMinute, r.State.Plan.Name
	switch {
	case limit == nil:
		return "unlimited", "The plan " + plan + " has no limit.", ""
	case !r.Windowed:
		return fmt.Sprintf("%d a minute", *limit), "", ""
	}
	wait := check.Seconds(r.RetryAfter)
	failed = fmt.Sprintf("The requests of this minute are used: those of the key, or those of all keys of its organization, which has the limit of one key times max_api_keys. "+
		"Wait %d s, or raise the limit: PATCH /api/v1/plans/%s/ {\"api_rate_limit_per_minute\": %d}.", wait, plan, max(2**limit, 60))
	return fmt.Sprintf("%d of %d left for %d s", r.Window.Remaining, *limit, check.Seconds(r.Window.Reset)),
		"The key and its organization have requests left. This explanation has used none.", failed
}

// permissionFacts tells whether the creator's role or the key's scope lacks a permission.
func (r *Request) permissionFacts() (value, passed, failed string) {
	needed := r.Permissions()
	switch {
	case needed.Empty() && r.Foreign:
		return "", "This is no path and method of Keyhook's API. For a path of your own API, name the permission that it needs in \"permission\".", ""
	case needed.Empty():
		return "", "No permission is needed here.", ""
	}
	s, text := r.State, []string{}
	if !r.Unknown.Empty() {
		return needed.String(), "", "There is no permission " + form.Printable(r.Unknown.String(), maxShownPermissions) +
			", so no key has it. Correct the path, or create the permission: POST /api/v1/permissions/."
	}
	if missing := needed.Minus(s.Granted); !missing.Empty() {
		text = append(text, fmt.Sprintf("The creator's role, %s, does not grant %s. Give the creator a role that does: PUT /api/v1/organizations/%s/members/%s/.",
			s.Role, missing, s.Home.ID, s.User.ID))
	}
	if missing := needed.Minus(s.Key.Scope); !missing.Empty() {
		text = append(text, fmt.Sprintf("The key's scope is fixed and does not include %s. Create another key with it in the scope: POST /api/v1/api-keys/.", missing))
	}
	return needed.String(), "The creator's role grants it, and the key's scope includes it.", strings.Join(text, " ")
}

// Permissions returns the needed permissions. Where one of several is enough, they are those that the key has, or all.
func (r *Request) Permissions() access.Scope {
	if held := r.AnyOf.Intersect(r.Principal.Permissions); !held.Empty() {
		return r.Needed.Union(held)
	}
	return r.Needed.Union(r.AnyOf)
}

const maxShownPermissions = 200
