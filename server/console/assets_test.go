package console

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The bytes that a browser loads, uncompressed.
const (
	maxBytes      = 487 << 10 // all files
	maxFrameBytes = 164 << 10 // what every page needs
	maxPageBytes  = 273 << 10 // any one page, with the frame
)

// The most lines of a file of our own, and characters of a line of a script or a stylesheet, so that a page reads from top to bottom.
const (
	maxLines = 250
	maxWidth = 160
)

// embedded returns our files, and those of libraries, by their path below static.
func embedded(t *testing.T) (ours, vendor map[string]string) {
	t.Helper()
	ours, vendor = map[string]string{}, map[string]string{}
	err := fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := static.ReadFile(name)
		name = strings.TrimPrefix(name, "static/")
		if library, found := strings.CutPrefix(name, "vendor/"); found {
			vendor[library] = string(body)
		} else {
			ours[name] = string(body)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ours, vendor
}

// held are the files whose lines are short.
var held = []string{".js", ".css"}

// TestDocumentsHaveShortLines holds the script and the stylesheet of the documents to the same width.
func TestDocumentsHaveShortLines(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docs.js", "style.css"} {
		body, err := os.ReadFile("../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(body), "\n") {
			if wide := utf8.RuneCountInString(line); wide > maxWidth {
				t.Errorf("docs/%s:%d has %d characters; the most are %d", name, i+1, wide, maxWidth)
			}
		}
	}
}

func TestAssetsAreSmall(t *testing.T) {
	t.Parallel()
	ours, vendor := embedded(t)
	total := 0
	for name, body := range vendor {
		if ext := path.Ext(name); ext != ".txt" && ext != ".md" { // no page loads licences
			total += len(body)
		}
	}
	for name, body := range ours {
		if name != "pages/parts.js" { // only developers load it
			total += len(body)
		}
		if lines := strings.Count(body, "\n"); lines > maxLines {
			t.Errorf("%s has %d lines; split it below %d", name, lines, maxLines)
		}
		for i, line := range strings.Split(body, "\n") {
			if wide := utf8.RuneCountInString(line); wide > maxWidth && slices.Contains(held, path.Ext(name)) {
				t.Errorf("%s:%d has %d characters; break it at an element or a declaration, below %d", name, i+1, wide, maxWidth)
			}
		}
	}
	if total > maxBytes {
		t.Errorf("the files have %d bytes, and at most %d are allowed", total, maxBytes)
	}
	t.Logf("%d bytes in %d files", total, len(ours)+len(vendor))
}

// TestAPageLoadsLittle adds up the files of the frame, and of each page that is loaded when it is opened.
func TestAPageLoadsLittle(t *testing.T) {
	t.Parallel()
	site, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	least := len(site.index.Body)
	for name, f := range site.files {
		if ext := path.Ext(name); ext == ".css" || ext == ".svg" {
			least += len(f.Body)
		}
	}
	first := frame()
	for _, name := range first {
		least += len(site.files[name].Body)
		if strings.HasPrefix(name, "pages/") {
			t.Errorf("every page loads %s; pages.js imports it when it is opened", name)
		}
	}
	if least > maxFrameBytes {
		t.Errorf("every page needs %d bytes, and at most %d are allowed", least, maxFrameBytes)
	}
	t.Logf("%6d bytes for every page", least)
	pages := later.FindAllSubmatch(site.files["pages.js"].Body, -1)
	if len(pages) == 0 || len(first) < 20 {
		t.Fatalf("found %d pages, and %d modules of the frame", len(pages), len(first))
	}
	for _, m := range pages {
		total := least
		for _, name := range modules(string(m[1])) {
			if !slices.Contains(first, name) {
				total += len(site.files[name].Body)
			}
		}
		if total > maxPageBytes {
			t.Errorf("%s needs %d bytes with the frame, and at most %d are allowed", m[1], total, maxPageBytes)
		}
		t.Logf("%6d bytes for %s", total, m[1])
	}
}

// later matches the import of a page that is loaded when it is opened.
var later = regexp.MustCompile(`import\('\./([^']+)'\)`)

// specifier matches the module that an import or an export names.
var specifier = regexp.MustCompile(`(?:\bfrom|\bimport)\s*\(?["']([^"']+)["']`)

func TestEveryImportNamesAFile(t *testing.T) {
	t.Parallel()
	ours, vendor := embedded(t)
	for name, body := range vendor {
		ours["vendor/"+name] = body
	}
	imports := 0
	for name, body := range ours {
		if ext := path.Ext(name); ext != ".js" && ext != ".mjs" {
			continue
		}
		for _, m := range specifier.FindAllStringSubmatch(body, -1) {
			imports++
			if _, found := ours[path.Join(path.Dir(name), m[1])]; !found || !strings.HasPrefix(m[1], ".") {
				t.Errorf("%s imports %s, which is no file", name, m[1])
			}
		}
	}
	if imports < 30 {
		t.Errorf("found only %d imports", imports)
	}
}

// named matches the import of names from one of our modules. exported matches what a module exports: a declaration, or names in braces.
var (
	named    = regexp.MustCompile(`(?s)\bimport\s*\{([^}]*)\}\s*from\s*'(\.[^']*)'`)
	exported = regexp.MustCompile(`(?m)^export (?:async )?(?:function|const|class|let) (\w+)|^export \{([^}]*)\}`)
)

// TestEveryImportedNameIsExported: a browser refuses a module, and all that import it, for one missing name.
func TestEveryImportedNameIsExported(t *testing.T) {
	t.Parallel()
	ours, _ := embedded(t)
	exports := map[string][]string{}
	for name, body := range ours {
		for _, m := range exported.FindAllStringSubmatch(body, -1) {
			exports[name] = append(exports[name], strings.FieldsFunc(m[1]+m[2], func(r rune) bool { return r == ',' || r == ' ' })...)
		}
	}
	checked := 0
	for name, body := range ours {
		for _, m := range named.FindAllStringSubmatch(body, -1) {
			from := path.Join(path.Dir(name), m[2])
			if strings.HasPrefix(from, "vendor/") {
				continue
			}
			for item := range strings.SplitSeq(m[1], ",") {
				want, _, _ := strings.Cut(strings.TrimSpace(item), " as ")
				if checked++; want != "" && !slices.Contains(exports[from], want) {
					t.Errorf("%s imports %s, which %s does not export", name, want, from)
				}
			}
		}
	}
	if checked < 100 {
		t.Errorf("found only %d imported names", checked)
	}
}

// forbidden are the ways to run or style text: the policy of the page refuses them, or they make elements of text.
var forbidden = regexp.MustCompile(`(?i)\bstyle=|\son[a-z]+\s*=\s*"|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|javascript:|https?://[a-z]`)

func TestNoFileRunsOrStylesText(t *testing.T) {
	t.Parallel()
	ours, _ := embedded(t)
	for name, body := range ours {
		for i, line := range strings.Split(body, "\n") {
			found := forbidden.FindString(line)
			known := strings.Contains(line, "http://www.w3.org/2000/svg") || strings.Contains(line, "https://example.com")
			if found != "" && !known {
				t.Errorf("%s:%d: %s", name, i+1, found)
			}
		}
		if strings.Contains(body, "fetch(") && name != "api.js" {
			t.Errorf("%s calls fetch; only api.js may", name)
		}
	}
}

// An icon is an attribute of a part, or the name of an Icon. drawn matches those that there are.
var (
	icon  = regexp.MustCompile(`\bicon="(\w+)"|<\$\{Icon\} name="(\w+)"|\bicon: '(\w+)'`)
	drawn = regexp.MustCompile(`(?m)^  (\w+): (?:ring|'M)`)
)

// TestEveryIconIsDrawn: a page shows an unknown icon as an empty place.
func TestEveryIconIsDrawn(t *testing.T) {
	t.Parallel()
	ours, _ := embedded(t)
	known := map[string]bool{}
	for _, m := range drawn.FindAllStringSubmatch(ours["ui/icon.js"], -1) {
		known[m[1]] = true
	}
	checked := 0
	for name, body := range ours {
		for _, m := range icon.FindAllStringSubmatch(body, -1) {
			if checked++; !known[m[1]+m[2]+m[3]] {
				t.Errorf("%s has the icon %s, which icon.js does not draw", name, m[1]+m[2]+m[3])
			}
		}
	}
	if checked < 30 {
		t.Errorf("found only %d icons", checked)
	}
}

func TestScriptsAreValid(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("KEYHOOK_TEST_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip("node is not installed")
	}
	// Linking finds wrong syntax, and names that a module does not export. It runs nothing.
	const link = `const {readFileSync} = require("node:fs"), {SourceTextModule} = require("node:vm"), {resolve, dirname} = require("node:path");
		const modules = new Map();
		const open = path => {
			if (!modules.has(path)) modules.set(path, new SourceTextModule(readFileSync(path, "utf8"), {identifier: path}));
			return modules.get(path);
		};
		(async () => {
			for (const f of process.argv.slice(1).map(f => resolve(f))) {
				const module = open(f);
				if (module.status === "unlinked") await module.link((name, from) => open(resolve(dirname(from.identifier), name)));
			}
		})()`
	args := []string{"--experimental-vm-modules", "--no-warnings", "-e", link}
	ours, _ := embedded(t)
	for name := range ours {
		if path.Ext(name) == ".js" {
			args = append(args, "static/"+name)
		}
	}
	if out, err := exec.CommandContext(t.Context(), node, args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// vendored matches a row of VENDOR.md: file, checksum of the published file, checksum of ours.
var vendored = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|.*\\| `([0-9a-f]{64})` \\| (?:the same|`([0-9a-f]{64})`) \\|$")

func TestLibrariesAreAsRecorded(t *testing.T) {
	t.Parallel()
	_, vendor := embedded(t)
	table := vendor["VENDOR.md"]
	seen := []string{"VENDOR.md"}
	for _, m := range vendored.FindAllStringSubmatch(table, -1) {
		sum := sha256.Sum256([]byte(vendor[m[1]]))
		want := m[2]
		if m[3] != "" {
			want = m[3]
			published := sha256.Sum256([]byte(strings.Replace(vendor[m[1]], `"./preact.mjs"`, `"preact"`, 1)))
			if hex.EncodeToString(published[:]) != m[2] {
				t.Errorf("%s: more than the import differs from the published file", m[1])
			}
		}
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s has the checksum %s, and VENDOR.md has %s", m[1], got, want)
		}
		seen = append(seen, m[1])
	}
	for name := range vendor {
		isLicence := strings.HasPrefix(name, "LICENSE.") && strings.Contains(table, "`"+name+"`")
		if !isLicence && !slices.Contains(seen, name) {
			t.Errorf("VENDOR.md does not describe %s", name)
		}
	}
}

func TestEveryFileHasAMediaType(t *testing.T) {
	t.Parallel()
	site, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range site.files {
		if f.Type == "" {
			t.Errorf("%s has none", name)
		}
	}
}

func TestThePageShowsTheOptions(t *testing.T) {
	t.Parallel()
	one, err := New(Options{Base: "/keys", Name: `A<b>"c`, OIDC: true})
	if err != nil {
		t.Fatal(err)
	}
	page := string(one.index.Body)
	for _, want := range []string{`data-base="/keys"`, `data-root="/keys/console/"`, `data-oidc="true"`, `data-parts="false"`, `<title>A&lt;b&gt;&#34;c</title>`, `src="/keys/console/` + one.assets + `app.js"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s:\n%s", want, page)
		}
	}
	other, err := New(Options{Accent: "#ff0000"})
	if err != nil {
		t.Fatal(err)
	}
	if one.assets == other.assets {
		t.Error("another accent has the same path, so browsers would keep the old colours")
	}
}
