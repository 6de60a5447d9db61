package platform

import (
	"github.com/keyhook/keyhook/server/exchange"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// The nouns in the text of a 404, as in the store.
const (
	anOrganization = "organization"
	aUser          = "user"
	aToken         = "access token"
	aPlan          = "plan"
	aRole          = "role"
	aPermission    = "permission"
)

// putReference returns the id or the external id in the path of a request that creates what does not exist. A text that cannot be an
// external id is a problem of the field external_id; an id of the type itself may exist.
func putReference(x *exchange.Exchange, f *form.Form, t access.IDType, noun string) (string, error) {
	text := x.Path.Value("id")
	switch {
	case text == "":
		return "", fault.Missing(noun)
	case !t.Valid(text):
		f.PathExternalID("external_id", text)
	}
	return text, nil
}

// pathName returns the name of a plan or a role in the path.
func pathName(x *exchange.Exchange, noun string) (string, error) {
	name := x.Path.Value("name")
	if !access.ValidName(name) {
		return "", fault.Missing(noun)
	}
	return name, nil
}

// pathKey returns the key of a permission in the path.
func pathKey(x *exchange.Exchange) (string, error) {
	key := x.Path.Value("key")
	if !access.ValidPermissionKey(key) {
		return "", fault.Missing(aPermission)
	}
	return key, nil
}
