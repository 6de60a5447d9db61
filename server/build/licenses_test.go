package build_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/server/build"
)

var update = flag.Bool("update", false, "write licenses.txt")

// platforms are those of a release. On each, the binary has other modules.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "freebsd/amd64"}

// licenseFile matches the names of files with a licence or with a notice that must go with it.
var licenseFile = regexp.MustCompile(`(?i)^([a-z]+-)?(licen[cs]e|copying|notice|patents)[^/]*$`)

// permissive lists the licences that allow every licence of the whole, with words of their text.
var permissive = []struct {
	name  string
	words *regexp.Regexp
}{
	{"Apache-2.0", regexp.MustCompile(`Apache License,? Version 2\.0`)},
	{"BSD-3-Clause", regexp.MustCompile(`(?s)Redistributions in binary form must reproduce.*(Neither|names of its contributors)`)},
	{"BSD-2-Clause", regexp.MustCompile(`Redistributions in binary form must reproduce`)},
	{"MIT", regexp.MustCompile(`Permission is hereby granted, free of charge`)},
	{"public domain", regexp.MustCompile(`SQLite Is Public Domain`)},
}

// copyleft matches the licences that ask for a licence of the whole, or of a file in it.
var copyleft = regexp.MustCompile(`(?i)(General|Mozilla|Eclipse) Public License|Business Source License`)

// report lists all modules that the libraries of SQLite name in go.mod, also those that are in no binary.
const report = "LICENSE-3RD-PARTY.md"

// component is a library in the binary.
type component struct {
	name, version, license string
	texts                  map[string]string // by the name of the file
}

// TestLicenses compares licenses.txt with the libraries that the binary contains. The flag -update writes the file.
func TestLicenses(t *testing.T) {
	t.Parallel()
	all := append(modules(t), scripts(t)...)
	slices.SortFunc(all, func(a, b component) int { return cmp.Compare(a.name, b.name) })
	for i, c := range all {
		all[i].license = classify(c)
		if all[i].license == "" {
			t.Errorf("%s %s has no licence that the test knows: %v", c.name, c.version, slices.Collect(maps.Keys(c.texts)))
		}
	}
	want := compose(all)
	if *update {
		if err := os.WriteFile("licenses.txt", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if build.Licenses != want {
		t.Error("licenses.txt is not about the libraries of this binary. Run: go test ./server/build -run TestLicenses -update")
	}
}

// classify names the licences of a component. It is empty if one of them is not permissive.
func classify(c component) string {
	found := map[string]bool{}
	for file, text := range c.texts {
		text = strings.Join(strings.Fields(text), " ")
		if file == report {
			continue
		}
		if copyleft.MatchString(text) {
			return ""
		}
		for _, p := range permissive {
			found[p.name] = found[p.name] || p.words.MatchString(text)
		}
	}
	if found["BSD-3-Clause"] { // its text contains the other
		found["BSD-2-Clause"] = false
	}
	maps.DeleteFunc(found, func(_ string, is bool) bool { return !is })
	return strings.Join(slices.Sorted(maps.Keys(found)), ", ")
}

// modules returns the modules of the binary on all platforms, and the standard library of Go.
func modules(t *testing.T) []component {
	t.Helper()
	dirs, versions := map[string]map[string]bool{}, map[string]string{} // the directories to search, by module
	for _, platform := range platforms {
		system, architecture, _ := strings.Cut(platform, "/")
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}} {{$.Dir}}{{end}}{{end}}", ".")
		list.Dir = "../.."
		list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0")
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list for %s: %v", platform, err)
		}
		for line := range strings.Lines(string(out)) {
			if words := strings.Fields(line); len(words) == 4 {
				path, top := words[0], words[2]
				if versions[path] = words[1]; dirs[path] == nil {
					dirs[path] = map[string]bool{}
				}
				for dir := words[3]; len(dir) >= len(top); dir = filepath.Dir(dir) {
					dirs[path][dir] = true
				}
			}
		}
	}
	goRoot, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(goRoot))
	all := []component{{name: "Go, the standard library", texts: licenses(t, root, root)}}
	for path, found := range dirs {
		c := component{name: path, version: versions[path], texts: map[string]string{}}
		top := slices.Min(slices.Collect(maps.Keys(found))) // the others are below it
		for dir := range found {
			maps.Copy(c.texts, licenses(t, top, dir))
		}
		all = append(all, c)
	}
	return all
}

// scripts returns the libraries of the console. The table of VENDOR.md lists them.
func scripts(t *testing.T) (all []component) {
	t.Helper()
	const vendor = "../console/static/vendor"
	table, err := os.ReadFile(vendor + "/VENDOR.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `[^`]+` \\| (\\S+) (\\S+) \\|.*?`(LICENSE[^`]+)`").FindAllStringSubmatch(string(table), -1) {
		text, err := os.ReadFile(filepath.Join(vendor, m[3]))
		if err != nil {
			t.Fatal(err)
		}
		if !seen[m[1]] {
			all = append(all, component{name: m[1], version: m[2], texts: map[string]string{m[3]: string(text)}})
		}
		seen[m[1]] = true
	}
	if len(all) < 2 {
		t.Errorf("the table of VENDOR.md names only %v", seen)
	}
	return all
}

// licenses returns the texts of the licences and notices in one directory of a module, by their paths in the module.
func licenses(t *testing.T, top, dir string) map[string]string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, f := range files {
		if f.Type().IsRegular() && licenseFile.MatchString(f.Name()) && filepath.Ext(f.Name()) != ".go" {
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			texts[strings.TrimPrefix(filepath.Join(dir, f.Name()), top+"/")] = string(text)
		}
	}
	return texts
}

// compose writes the list and then the texts. Components with the same text share it.
func compose(all []component) string {
	var list, texts strings.Builder
	owners := map[string][]string{}
	for _, c := range all {
		title := strings.TrimSpace(c.name + " " + c.version)
		fmt.Fprintf(&list, "%s: %s\n", title, c.license)
		for file, text := range c.texts {
			text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
			owners[text] = append(owners[text], title+": "+file)
		}
	}
	for _, text := range slices.SortedFunc(maps.Keys(owners), func(a, b string) int {
		return cmp.Compare(slices.Min(owners[a]), slices.Min(owners[b]))
	}) {
		slices.Sort(owners[text])
		fmt.Fprintf(&texts, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(owners[text], "\n"), text)
	}
	return "The libraries in Keyhook, and their licences. The licence of Keyhook itself has not been chosen yet.\n\n" + list.String() + texts.String()
}
