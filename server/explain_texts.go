package server

import (
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/server/credential"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// factsOf returns the value that a check looked at, the text if it passed or does not apply, and the text if it failed.
func (m *explained) factsOf(c access.Check) (value, passed, failed string) {
	if c > access.CheckLookUp && m.state.Key == nil {
		return "", "", "" // the key was not found
	}
	switch c {
	case access.CheckParse:
		return m.parseFacts()
	case access.CheckLookUp:
		return m.lookUpFacts()
	case access.CheckRevoked:
		at := timeOrNever(m.state.Key.RevokedAt)
		return at, "The key has not been revoked.",
			"The key was revoked, and that is final. Create another key: POST /api/v1/api-keys/."
	case access.CheckExpired:
		at := timeOrNever(m.state.Key.ExpiresAt)
		return at, "The key has not expired.",
			"The key has expired. Create another key with a later expires_at or none: POST /api/v1/api-keys/."
	case access.CheckCreator:
		return m.creatorFacts()
	case access.CheckPlan:
		return m.planFacts()
	case access.CheckRateLimit:
		return m.rateLimitFacts()
	case access.CheckOrganization:
		return m.state.Home.ID, "The key acts in its own organization unless the request has the header " + credential.OrganizationHeader +
			". Resources of other organizations are not found: 404.", ""
	case access.CheckPermission:
		return m.permissionFacts()
	}
	return "", "", ""
}

// timeOrNever formats a time; nil is "never".
func timeOrNever(at *int64) string {
	if at == nil {
		return "never"
	}
	return string(webhook.AppendTime(nil, *at))
}

func (m *explained) parseFacts() (value, passed, failed string) {
	switch {
	case m.byID:
		return "", "The key was named by its id, so there is no raw key to check.", ""
	case m.Unreadable == nil:
		return m.Credential.Display(), "The form and the checksum are valid.", ""
	case m.code != credential.CodeUnknown:
		return fmt.Sprintf("%d characters", m.length), "", publicDetail(m.Unreadable)
	}
	return fmt.Sprintf("%d characters", m.length), "", "This is not a key: its form or its checksum is wrong, for example because a character is missing. " +
		"Copy the whole key again: the prefix, an underscore, and 36 letters and digits."
}

func (m *explained) lookUpFacts() (value, passed, failed string) {
	const unknown = "There is no such key in an organization that you may read. Look for its prefix in GET /api/v1/api-keys/?status=all, or create another key: POST /api/v1/api-keys/."
	if m.state.Key == nil {
		return "", "", unknown
	}
	return m.state.Key.ID, fmt.Sprintf("The key is %q of the organization %q.", m.state.Key.Name, m.state.Home.Name), unknown
}

func (m *explained) creatorFacts() (value, passed, failed string) {
	s := m.state
	switch {
	case !s.User.IsActive:
		failed = fmt.Sprintf("The creator, %s, is not active. Activate the user: PATCH /api/v1/users/%s/ {\"is_active\": true}. "+
			"Or let another member create a key.", s.User.Email, s.User.ID)
	case !s.Member:
		failed = fmt.Sprintf("The creator, %s, is no longer a member of the organization. Add the user again: "+
			"PUT /api/v1/organizations/%s/members/%s/ {\"role\": \"member\"}. Or let a member create a key.", s.User.Email, s.Home.ID, s.User.ID)
	}
	return s.User.ID, fmt.Sprintf("The creator, %s, is active and a member with the role %s.", s.User.Email, s.Role), failed
}

func (m *explained) planFacts() (value, passed, failed string) {
	name := m.state.Plan.Name
	return name, "The plan " + name + " includes API keys.",
		fmt.Sprintf("The plan %s does not include API keys. Move the organization to one that does: PATCH /api/v1/organizations/%s/ {\"plan\": \"growth\"}.",
			name, m.state.Home.ID)
}

func (m *explained) rateLimitFacts() (value, passed, failed string) {
	const raise = "raise the limit: PATCH /api/v1/plans/%s/ {\"api_rate_limit_per_minute\": %d}."
	limit, plan := m.state.Plan.RateLimitPerMinute, m.state.Plan.Name
	switch {
	case limit == nil:
		return "unlimited", "The plan " + plan + " has no limit.", ""
	case !m.Windowed:
		return fmt.Sprintf("%d a minute", *limit), "", ""
	case *limit == 0:
		failed = fmt.Sprintf("The plan %s allows no requests at all. Move the organization to another plan, or "+raise, plan, plan, 60)
	case m.Window.Allowed:
		failed = fmt.Sprintf("All API keys of the organization together have used their %d requests of this minute: the limit of one key "+
			"times max_api_keys. Wait %d s, or "+raise, m.OrganizationWindow.Limit, seconds(m.OrganizationWindow.Reset), plan, 2**limit)
	default:
		failed = fmt.Sprintf("All %d requests of this minute are used. Wait %d s, or "+raise, *limit, seconds(m.Window.Reset), plan, 2**limit)
	}
	return fmt.Sprintf("%d of %d left for %d s", m.Window.Remaining, *limit, seconds(m.Window.Reset)),
		"The key and its organization have requests left. This explanation has used none.", failed
}

// permissionFacts tells whether the creator's role or the key's scope lacks a permission.
func (m *explained) permissionFacts() (value, passed, failed string) {
	if m.Needed.Empty() {
		return "", m.noPermissionNeeded(), ""
	}
	s, text := m.state, []string{}
	if !m.unknown.Empty() {
		return m.Needed.String(), "", "There is no permission " + form.Printable(m.unknown.String(), maxShownPermissions) +
			", so no key has it. Correct the path, or create the permission: POST /api/v1/permissions/."
	}
	if missing := m.Needed.Minus(s.Granted); !missing.Empty() {
		text = append(text, fmt.Sprintf("The creator's role, %s, does not grant %s. Give the creator a role that does: PUT /api/v1/organizations/%s/members/%s/.",
			s.Role, missing, s.Home.ID, s.User.ID))
	}
	if missing := m.Needed.Minus(s.Key.Scope); !missing.Empty() {
		text = append(text, fmt.Sprintf("The key's scope is fixed and does not include %s. Create another key with it in the scope: POST /api/v1/api-keys/.", missing))
	}
	return m.Needed.String(), "The creator's role grants it, and the key's scope includes it.", strings.Join(text, " ")
}

func (m *explained) noPermissionNeeded() string {
	switch {
	case m.isForwardAuth():
		return "The proxy needs no permission: every key that passes the other checks is allowed."
	case m.request.route != nil:
		return "This route needs no permission: every valid credential is allowed."
	case len(m.allowed) > 0:
		return "Keyhook serves this path only with " + strings.Join(m.allowed, ", ") + "; the response would be 405."
	}
	return "Keyhook has no route for this path, and no permission is named. Name the permission that your API needs in \"permission\"."
}

// maxShownPermissions is the most characters of unknown permissions that a response shows.
const maxShownPermissions = 200

// publicDetail is the part of an error that a caller may see.
func publicDetail(err error) string { return publicProblem(err).Detail }
