package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/access"
)

// ids is what the ids of one sort of thing look like.
type ids struct {
	prefix access.IDType
	sort   string // "an API key"
	source string // the list of the API
}

var (
	keyIDs          = ids{access.KeyID, "an API key", pathKeys}
	subscriptionIDs = ids{access.SubscriptionID, "a subscription", pathSubscriptions}
	eventIDs        = ids{access.EventID, "an event", pathEvents}
	attemptIDs      = ids{access.AttemptID, "a delivery attempt", ""}
	organizationIDs = ids{access.OrganizationID, "an organization", pathOrganizations}
	userIDs         = ids{access.UserID, "a user", pathUsers}
	tokenIDs        = ids{access.TokenID, "an access token", ""}
)

// sorts tells what an id of another sort is of.
var sorts = []ids{keyIDs, subscriptionIDs, eventIDs, attemptIDs, organizationIDs, userIDs, tokenIDs, {access.AuditEventID, "an audit event", ""}}

// idOf is the id of a thing of that sort.
func idOf(wanted ids) kind {
	return kind{name: "id", source: wanted.source, read: func(text string) (any, error) {
		found, ok := access.IDTypeOf(text)
		switch {
		case text == "":
			return nil, fmt.Errorf("it is empty: write the id of %s, %s_…", wanted.sort, wanted.prefix)
		case !ok:
			return nil, fmt.Errorf("%s is no id: that of %s is %s_ and 26 letters and digits", output.Quote(text), wanted.sort, wanted.prefix)
		case found != wanted.prefix:
			for _, other := range sorts {
				if found == other.prefix {
					return nil, fmt.Errorf("%s is the id of %s: that of %s begins with %s_", text, other.sort, wanted.sort, wanted.prefix)
				}
			}
			return nil, fmt.Errorf("%s is no id of %s: that begins with %s_", text, wanted.sort, wanted.prefix)
		}
		return text, nil
	}}
}

// named is the name of a plan or a role, which stand in paths.
func named(sort, source string) kind {
	return kind{name: "name", source: source, read: func(text string) (any, error) {
		if !access.ValidName(text) {
			return nil, fmt.Errorf("%s is no name of a %s: that has small letters, digits, _ and -, a letter first", output.Quote(text), sort)
		}
		return text, nil
	}}
}

// permission is the key of a permission.
var permission = kind{name: "permission", source: pathPermissions, read: func(text string) (any, error) {
	if !access.ValidPermissionKey(text) {
		return nil, fmt.Errorf("%s is no permission: that is words with colons between them, as orders:read", output.Quote(text))
	}
	return text, nil
}}

// keyOrID is what explain takes: a key itself, or its id.
var keyOrID = kind{name: "key|id", source: pathKeys, stdin: true, read: func(text string) (any, error) {
	if strings.HasPrefix(text, string(keyIDs.prefix)+"_") {
		return idOf(keyIDs).read(text)
	}
	return credential.read(text)
}}

// method is an HTTP method.
var method = kind{name: "method", choices: []string{"GET", "POST", "PUT", "PATCH", "DELETE"}, read: func(text string) (any, error) {
	upper := strings.ToUpper(text)
	if upper == "" || strings.ContainsFunc(upper, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		return nil, fmt.Errorf("%s is no method: write GET, POST, PUT, PATCH or DELETE", output.Quote(text))
	}
	return upper, nil
}}

// requestPath is the path of any request: one that begins with a slash stands as it is, and one that does not is of the
// API.
var requestPath = kind{name: "path", read: func(text string) (any, error) {
	path, err := apiPath.read(text)
	if err == nil && strings.HasPrefix(text, "/") {
		return text, nil
	}
	return path, err
}}

// apiPath is a path of the API, with or without what all of them begin with.
var apiPath = kind{name: "path", read: func(text string) (any, error) {
	switch {
	case text == "":
		return nil, errors.New("it is empty: write a path of the API, as whoami")
	case strings.Contains(text, "://"):
		return nil, fmt.Errorf("%s is a URL: write the path alone, and the server as --%s", output.Quote(text), client.FlagURL)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }):
		return nil, fmt.Errorf("%s holds a character that no path has: write it percent-encoded", output.Quote(text))
	}
	path := strings.TrimLeft(text, "/")
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "api/v1"), "/")
	first, _, _ = strings.Cut(first, "?")
	switch {
	case strings.HasPrefix(path, "api/v1/") || path == "api/v1" || outside[first]:
		return "/" + path, nil
	}
	return "/api/v1/" + path, nil
}}

// outside are the paths beside the API.
var outside = map[string]bool{"healthz": true, "readyz": true, "metrics": true, "openapi.yaml": true, "openapi.json": true}
