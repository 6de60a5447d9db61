package access

import "strings"

// IDType is what a public id names, as the id's prefix. Public ids are TypeIDs (TypeID 0.3): "sub_01h455vb4pex5vsknk084sn02q".
type IDType string

// The types of public ids.
const (
	KeyID          IDType = "key"
	TokenID        IDType = "tok"
	OrganizationID IDType = "org"
	UserID         IDType = "usr"
	SubscriptionID IDType = "sub"
	EventID        IDType = "evt"
	AttemptID      IDType = "att"
	AuditEventID   IDType = "aud"
	SessionID      IDType = "ses"
	LinkID         IDType = "lnk"
)

var idNouns = map[IDType]string{
	KeyID: "API key", TokenID: "access token", OrganizationID: "organization", UserID: "user", SubscriptionID: "subscription",
	EventID: "event", AttemptID: "attempt", AuditEventID: "audit event", SessionID: "session", LinkID: "portal link",
}

// Noun returns what an id of this type names, as in the text of a 404: "API key". It is empty for an unknown type.
func (t IDType) Noun() string { return idNouns[t] }

// LooksLikeID reports whether s has the form of a public id of Keyhook. No external id has this form, so that a caller may write either one.
func LooksLikeID(s string) bool {
	found, ok := IDTypeOf(s)
	return ok && found.Noun() != ""
}

// MaxExternalID limits an external id, in characters.
const MaxExternalID = 255

// ValidExternalID reports whether s may be an external id: 1 to 255 visible ASCII characters, because headers and paths contain it.
// It is not the form of an id of Keyhook, and not a dot or two dots, which paths remove.
func ValidExternalID(s string) bool {
	return s != "" && len(s) <= MaxExternalID && IsVisible(s) && s != "." && s != ".." && !LooksLikeID(s)
}

// IsVisible reports whether all characters of s are visible ASCII characters. A space is not visible.
func IsVisible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Valid reports whether s has the form of a public id of this type.
func (t IDType) Valid(s string) bool {
	found, ok := IDTypeOf(s)
	return ok && found == t
}

// MayName reports whether s may name something of this type: by a public id of the type, or by an external id.
func (t IDType) MayName(s string) bool { return t.Valid(s) || ValidExternalID(s) }

// IDTypeOf returns the type of a public id, even if Keyhook does not know the type. ok is false unless s
// has the form of an id: three letters, an underscore, and 26 characters of Crockford's base 32 in lower case. The first of
// these characters is at most 7, because an id has 128 bits.
func IDTypeOf(s string) (t IDType, ok bool) {
	prefix, suffix, _ := strings.Cut(s, "_")
	if len(prefix) != 3 || len(suffix) != 26 || suffix[0] > '7' ||
		strings.Trim(prefix, "abcdefghijklmnopqrstuvwxyz") != "" || strings.Trim(suffix, "0123456789abcdefghjkmnpqrstvwxyz") != "" {
		return "", false
	}
	return IDType(prefix), true
}
