package docs_test

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.." // of the repository

var (
	code       = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inline     = regexp.MustCompile("`[^`\n]*`")
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`)
)

// TestLinksLeadSomewhere follows the links of all Markdown files as GitHub shows them: to a file, and to a heading in it.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"*.md", ".github/*.md", ".github/design/*.md", "server/docs/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 11 {
		t.Fatalf("only %d files: %v", len(files), files)
	}
	for _, file := range files {
		links := linkTarget.FindAllStringSubmatch(inline.ReplaceAllString(prose(t, file), ""), -1)
		for _, m := range links {
			target, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: the link %q: %v", file, m[1], err)
				continue
			}
			if target.Scheme != "" {
				continue
			}
			to := file
			if target.Path != "" {
				to = filepath.Join(filepath.Dir(file), target.Path)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, and there is no such file", file, m[1])
				continue
			}
			if target.Fragment != "" && !headings(t, to)[target.Fragment] {
				t.Errorf("%s links to %s, and there is no such heading", file, m[1])
			}
		}
	}
}

// prose returns the text of a file without its blocks of code.
func prose(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return code.ReplaceAllString(string(text), "")
}

// headings returns the anchors that GitHub makes of the headings of a file.
func headings(t *testing.T, file string) map[string]bool {
	t.Helper()
	anchors := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(prose(t, file), -1) {
		slug := notInSlug.ReplaceAllString(strings.ToLower(m[1]), "")
		anchors[strings.ReplaceAll(slug, " ", "-")] = true
	}
	return anchors
}
