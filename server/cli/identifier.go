package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/storage/access"
)

// identifier is an id, an external id or a name. The server knows which of them a request takes. A credential in the wrong place is never
// sent. The help shows name as the type.
func identifier(name string) valueType {
	return valueType{name: name, parse: func(text string) (any, error) {
		switch {
		case access.ShortenMinted(text) != text:
			return nil, errors.New("must be an id, not an API key or an access token")
		case !access.LooksLikeID(text) && !access.ValidExternalID(text):
			return nil, fmt.Errorf("must have 1 to %d visible ASCII characters, without spaces", access.MaxExternalID)
		}
		return text, nil
	}}
}

var (
	id             = identifier("id")
	externalID     = identifier("external-id")
	idOrExternalID = identifier("id|external-id")
	named          = identifier("name")
	eventType      = identifier("type")
	permission     = identifier("permission")
)

// keyPrefix is the beginning of an API key that lists show.
var keyPrefix = valueType{name: "prefix", parse: someText.parse}

// permissionList is a list of permissions. It may be empty.
var permissionList = valueType{name: "permissions", repeatable: true, parse: words.parse}

// scope is a list of permissions. The API takes it as one string.
var scope = valueType{name: "permissions", repeatable: true, parse: func(text string) (any, error) {
	list, err := splitWords(text)
	return strings.Join(list, " "), err
}}

// apiKey is an API key. On the command line, everybody on the machine can see it, so "-" reads it from the standard input.
var apiKey = valueType{name: "key", fromStdin: true, parse: someText.parse}

// apiKeyOrID is an API key, its id or external id, or the prefix that lists show.
var apiKeyOrID = valueType{name: "key|id|prefix", fromStdin: true, parse: someText.parse}

// method is an HTTP method.
var method = valueType{name: "method", choices: []string{"GET", "POST", "PUT", "PATCH", "DELETE"}, parse: func(text string) (any, error) {
	_, err := named.parse(text)
	return strings.ToUpper(text), err
}}

// apiPath is a path of the API. It may leave out /api/v1/.
var apiPath = valueType{name: "path", parse: func(text string) (any, error) {
	if strings.Contains(text, "://") {
		return nil, errors.New("must be a path, not a URL; give the server with --" + client.FlagURL)
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
	if strings.HasPrefix(text, "/") {
		return text, nil
	}
	return apiPath.parse(text)
}}
