package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// codeName is a package of this repository and a name in it: `dispatch.TestCrash`, or `dispatch.scheduler.sendNext` for a method.
	codeName = regexp.MustCompile("`([a-z0-9]+(?:/[a-z0-9]+)*)\\.([A-Z]\\w*(?:\\.\\w+)?|\\w+\\.\\w+)`")
	testName = regexp.MustCompile(`\bTest[A-Z]\w+`)
)

// TestNamesInDocumentsExist looks up the tests, types and functions that the fault model, the list of defects and the design notes name.
func TestNamesInDocumentsExist(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, ".github/design/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]map[string]bool{} // names by package
	for _, file := range append(files, filepath.Join(root, ".github/FAULTS.md"), filepath.Join(root, ".github/RELIABILITY.md")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range codeName.FindAllStringSubmatch(string(text), -1) {
			if known[m[1]] == nil {
				known[m[1]] = declared(t, m[1])
			}
			if !known[m[1]][m[2]] {
				t.Errorf("%s names %s, and the package %s has no %s", filepath.Base(file), m[0], m[1], m[2])
			}
		}
		if alone := testName.FindString(codeName.ReplaceAllString(string(text), "")); alone != "" {
			t.Errorf("%s names %s without its package", filepath.Base(file), alone)
		}
	}
}

// TestEveryPromiseNamesATest reads the tables of the fault model. Each row is a promise.
func TestEveryPromiseNamesATest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, ".github/FAULTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	promises := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		if last := cells[len(cells)-1]; len(cells) > 1 && !strings.HasPrefix(last, "held by") {
			if promises++; !testName.MatchString(last) {
				t.Errorf("no test holds: %s", line)
			}
		}
	}
	if promises < 40 {
		t.Errorf("only %d promises were found", promises)
	}
}

// declared returns the functions, types, variables and constants of a package, and its methods as Type.Method, with those of its tests.
func declared(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no package %s, error %v", pkg, err)
	}
	names := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			addNames(names, d)
		}
	}
	return names
}

// addNames adds the names that a declaration declares.
func addNames(names map[string]bool, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		names[receiver(d)+d.Name.Name] = true
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names[spec.Name.Name] = true
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					names[name.Name] = true
				}
			}
		}
	}
}

// receiver returns the type of a method and a dot, or nothing for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}
