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
)

// The paths of lists.
const (
	organizationsPath = "/api/v1/organizations/"
	usersPath         = "/api/v1/users/"
)

// externalID is the field that the path of a PUT has.
const externalID = "external_id"

// putReference returns the id or the external id in the path of a request that creates what does not exist. A text that cannot be an
// external id is a problem of the field external_id; an id of the type itself may exist.
func putReference(x *exchange.Exchange, f *form.Form, t access.IDType, noun string) (string, error) {
	text := x.Path.Value("id")
	switch {
	case text == "":
		return "", fault.Missing(noun)
	case !t.Valid(text):
		f.RefuseExternalID(externalID, text)
	}
	return text, nil
}

// suggestPut adds to the conflict of a creation how to repeat it without one.
func suggestPut(err error, path string) error {
	conflict, ok := fault.As(err)
	if !ok || conflict.Code != "already_exists" {
		return err
	}
	mended := *conflict
	mended.Message += " To create it or to change what exists, use PUT " + path + "{external_id}/."
	return &mended
}

// notCreated turns the NotFound fault of a PUT by the id of nothing into a problem of the external id: the request could create it.
func notCreated(err error, noun string) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	return fault.Fields([]fault.Field{{
		Field: externalID, Code: "invalid",
		Message: "There is no " + noun + " with this id, and an external id may not have the form of an id of Keyhook; choose another external id to create one.",
	}})
}
