package access_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/access"
)

// TestAuditTypes holds the list equal to the constants: a type that is not in it could be published by anybody.
func TestAuditTypes(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "audit.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for _, d := range file.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, s := range group.Specs {
			for _, value := range s.(*ast.ValueSpec).Values {
				text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				declared = append(declared, text)
			}
		}
	}
	if d := cmp.Diff(declared, access.AuditTypes()); d != "" {
		t.Errorf("auditTypes (-constants +list):\n%s", d)
	}
	for _, name := range declared {
		if !access.IsAuditType(name) || strings.Contains(name, ".") {
			t.Errorf("%s is not reserved, or has a dot: names with a dot are free for the host product", name)
		}
	}
	if slices.ContainsFunc([]string{"", "order.paid", "api_key_created.x"}, access.IsAuditType) {
		t.Error("a type of the host product is reserved")
	}
}
