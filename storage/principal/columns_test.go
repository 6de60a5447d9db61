package principal_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/principal"
)

// notOfPrincipals are the fields that a principal does not have, because no decision and no response needs them.
var notOfPrincipals = map[reflect.Type]string{
	reflect.TypeFor[access.Key]():          "organization_external_id organization_name replaces rotated_to creator_name creator_is_service",
	reflect.TypeFor[access.User]():         "service_of_name erased_at cleaned_at",
	reflect.TypeFor[access.Organization](): "closed_at last_event_at cleaned_at",
	reflect.TypeFor[access.AccessToken]():  "organization_external_id",
	reflect.TypeFor[access.Role]():         "id created_at",
	reflect.TypeFor[access.Session]():      "role", // the column is limit.name
}

// TestStatementsFillEveryField looks for a column for each field, because a field without a column is empty, and no error says so.
func TestStatementsFillEveryField(t *testing.T) {
	t.Parallel()
	parts := reflect.VisibleFields(principal.Row)
	for name, statement := range principal.Statements {
		for _, part := range parts {
			prefix := part.Tag.Get("db")
			if part.Type.Kind() == reflect.Bool || !strings.Contains(statement, `"`+prefix+".") {
				continue
			}
			typ := part.Type
			if typ.Kind() == reflect.Pointer {
				typ = typ.Elem()
			}
			for _, field := range reflect.VisibleFields(typ) {
				column := field.Tag.Get("db")
				missing := !strings.Contains(statement, ` AS "`+prefix+"."+column+`"`)
				if column != "" && column != "-" && missing != slices.Contains(strings.Fields(notOfPrincipals[typ]), column) {
					t.Errorf("%s: the column %s.%s is missing: %t", name, prefix, column, missing)
				}
			}
		}
	}
}
