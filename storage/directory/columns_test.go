package directory_test

import (
	"net/netip"
	"reflect"
	"regexp"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/directory"
)

// TestColumnsFillEveryField looks for a column for each field, because a field without a column is empty, and no error says so.
func TestColumnsFillEveryField(t *testing.T) {
	t.Parallel()
	for columns, typ := range map[string]reflect.Type{
		directory.Columns.Keys:          reflect.TypeFor[access.Key](),
		directory.Columns.Tokens:        reflect.TypeFor[access.AccessToken](),
		directory.Columns.Users:         reflect.TypeFor[access.User](),
		directory.Columns.Plans:         reflect.TypeFor[access.Plan](),
		directory.Columns.Organizations: reflect.TypeFor[access.Organization](),
	} {
		for _, field := range reflect.VisibleFields(typ) {
			column := field.Tag.Get("db")
			if column != "" && column != "-" && !regexp.MustCompile(`[.\s]`+column+`(,|\s|$)`).MatchString(" "+columns) {
				t.Errorf("%s: the column %s is missing", typ, column)
			}
		}
	}
}

// TestASuccessorIsLikeItsPredecessor gives each field of a key a value. A rotation makes its successor with Again.
func TestASuccessorIsLikeItsPredecessor(t *testing.T) {
	t.Parallel()
	text, at := "text", int64(1)
	key := access.Key{Issued: access.Issued{Name: text, ExpiresAt: &at}, Metadata: "{}", ExternalID: &text, AllowedNetworks: access.Networks{netip.MustParsePrefix("10.0.0.0/8")}}
	successor := reflect.ValueOf(key.Again(access.Mint("svc")))
	for i, field := range reflect.VisibleFields(successor.Type()) {
		if decided := field.Name == "User" || field.Name == "Scope"; successor.Field(i).IsZero() != decided { // who rotates it decides these
			t.Errorf("%s of the successor: %v", field.Name, successor.Field(i))
		}
	}
}
