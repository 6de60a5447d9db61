package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/webhook"
)

// idType is what the commands know about the ids of one type.
type idType struct {
	access.IDType
	listPath string // the list of the API; empty for none
}

var (
	keyID          = idType{access.KeyID, pathKeys}
	subscriptionID = idType{access.SubscriptionID, pathSubscriptions}
	eventID        = idType{access.EventID, pathEvents}
	attemptID      = idType{access.AttemptID, ""}
	organizationID = idType{access.OrganizationID, pathOrganizations}
	userID         = idType{access.UserID, pathUsers}
	tokenID        = idType{access.TokenID, ""}
)

// idOf is an id of one type.
func idOf(wanted idType) valueType {
	return valueType{name: "id", listPath: wanted.listPath, parse: func(text string) (any, error) {
		found, ok := access.IDTypeOf(text)
		switch {
		case !ok:
			return nil, fmt.Errorf("must be the id of %s: %s_ and 26 letters and digits", wanted.Noun(), wanted.IDType)
		case found != wanted.IDType && found.Noun() != "":
			return nil, fmt.Errorf("must be the id of %s (%s_…), not the id of %s", wanted.Noun(), wanted.IDType, found.Noun())
		case found != wanted.IDType:
			return nil, fmt.Errorf("must be the id of %s (%s_…)", wanted.Noun(), wanted.IDType)
		}
		return text, nil
	}}
}

// idOrExternalID is an id of one type, or an external id.
func idOrExternalID(wanted idType) valueType {
	id := idOf(wanted)
	return valueType{name: "id|external-id", listPath: wanted.listPath, parse: func(text string) (any, error) {
		if access.LooksLikeID(text) {
			return id.parse(text)
		}
		return externalID.parse(text)
	}}
}

// externalID is an id of your own product.
var externalID = valueType{name: "external-id", parse: func(text string) (any, error) {
	switch {
	case access.ShortenMinted(text) != text:
		return nil, errors.New("must be an id, not an API key or an access token")
	case access.LooksLikeID(text):
		return nil, errors.New("must be an id of your own product, not an id of Keyhook")
	case !access.ValidExternalID(text):
		return nil, fmt.Errorf("must be an id or an external id: 1 to %d visible ASCII characters, without spaces", access.MaxExternalID)
	}
	return text, nil
}}

// nameOf is the name of a plan or a role.
func nameOf(thing, listPath string) valueType {
	return valueType{name: "name", listPath: listPath, parse: valid(access.ValidName,
		"must be the name of a "+thing+": lower-case letters, digits, _ and -, beginning with a letter")}
}

// eventType is the type of an event.
var eventType = valueType{name: "type", listPath: pathEventTypes, parse: valid(webhook.ValidType,
	"must be an event type: words of lower-case letters, digits and _ with dots between them, such as order.paid")}

// eventTypeList is a list of event types, or of patterns such as order.*. It may be empty.
var eventTypeList = valueType{name: "list", repeatable: true, listPath: pathEventTypes, parse: words.parse}
var eventPattern = valueType{name: "text", listPath: pathEventTypes, parse: someText.parse} // one of them

// permission is the key of a permission.
var permission = valueType{name: "permission", listPath: pathPermissions, parse: valid(access.ValidPermissionKey,
	"must be a permission: words of lower-case letters, digits and _ with colons between them, such as orders:read")}

// permissionList is a list of permissions. It may be empty.
var permissionList = valueType{name: "permissions", repeatable: true, listPath: pathPermissions, parse: words.parse}

// scope is at least one permission. The API takes a scope as one string.
var scope = valueType{name: "permissions", repeatable: true, listPath: pathPermissions, parse: func(text string) (any, error) {
	list, err := splitWords(text)
	if err == nil && len(list) == 0 {
		err = errors.New("must be a list of permissions, such as events:write")
	}
	return strings.Join(list, " "), err
}}

// apiKey is an API key, or the whole value of the header Authorization. On the command line, everybody on the machine can see it, so "-" reads it from the standard input.
var apiKey = valueType{name: "key", fromStdin: true, parse: func(text string) (any, error) {
	scheme, key, found := strings.Cut(text, " ")
	switch {
	case found && strings.EqualFold(scheme, "ApiKey"):
		text = key
	case found && strings.EqualFold(scheme, "Bearer"):
		return nil, errors.New("must be an API key, and clients must send API keys as \"Authorization: ApiKey svc_…\": with Bearer, the response is 401 wrong_scheme")
	}
	prefix, _ := access.LooksMinted(text)
	switch {
	case text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("must be an API key, svc_…")
	case access.LooksLikeID(text), !strings.Contains(text, "_"): // an external id or a name has no prefix
		return nil, errors.New("must be the API key itself, svc_…, not an id; only its creation shows the key")
	case prefix == access.TokenPrefix:
		return nil, errors.New("must be an API key, svc_…, not an access token")
	}
	return text, nil
}}

// keyPrefix is the beginning of an API key that lists show.
var keyPrefix = valueType{name: "prefix", parse: func(text string) (any, error) {
	display, ok := access.ParseDisplay(text)
	if !ok {
		return nil, errors.New("must be the beginning of an API key that lists show, such as svc_AbCdEf")
	}
	return display, nil
}}

// apiKeyOrID is an API key, its id or external id, or the prefix that lists show.
var apiKeyOrID = valueType{name: "key|id|prefix", listPath: pathKeys, fromStdin: true, parse: func(text string) (any, error) {
	if _, ok := access.ParseDisplay(text); ok {
		return text, nil
	}
	if _, minted := access.LooksMinted(text); !minted && (access.LooksLikeID(text) || access.ValidExternalID(text)) {
		return idOrExternalID(keyID).parse(text)
	}
	return apiKey.parse(text)
}}

// method is an HTTP method.
var method = valueType{name: "method", choices: []string{"GET", "POST", "PUT", "PATCH", "DELETE"}, parse: func(text string) (any, error) {
	upper := strings.ToUpper(text)
	if upper == "" || strings.ContainsFunc(upper, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		return nil, errors.New("must be GET, POST, PUT, PATCH or DELETE")
	}
	return upper, nil
}}

// apiPath is a path of the API. It may leave out /api/v1/.
var apiPath = valueType{name: "path", parse: func(text string) (any, error) {
	switch {
	case text == "":
		return nil, errors.New("must be a path of the API, such as whoami")
	case strings.Contains(text, "://"):
		return nil, errors.New("must be a path, not a URL; give the server with --" + client.FlagURL)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }):
		return nil, errors.New("must be a path without spaces, control characters and #; percent-encode such a character")
	}
	path := strings.TrimLeft(text, "/")
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "api/v1"), "/")
	first, _, _ = strings.Cut(first, "?")
	if strings.HasPrefix(path, "api/v1/") || path == "api/v1" || pathsOutsideAPI[first] {
		return "/" + path, nil
	}
	return "/api/v1/" + path, nil
}}

// pathsOutsideAPI are the paths of a server that are not below /api/v1/.
var pathsOutsideAPI = map[string]bool{"healthz": true, "readyz": true, "metrics": true, "openapi.yaml": true, "openapi.json": true}

// anyPath is the path of any API if it begins with a slash, and else a path of the API of Keyhook.
var anyPath = valueType{name: "path", parse: func(text string) (any, error) {
	path, err := apiPath.parse(text)
	if err == nil && strings.HasPrefix(text, "/") {
		return text, nil
	}
	return path, err
}}
