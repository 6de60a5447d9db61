package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// buildNext builds a program that never existed: this one with one more schema. Its step is made as CONTRIBUTING.md says: a column and
// an index in schema.sql, a higher number, and the step. It returns the number of that schema.
func buildNext(t *testing.T) (binary string, version int) {
	t.Helper()
	root, err := filepath.Abs("../..")
	noError(t, err)
	dir := t.TempDir()
	replaced := map[string]string{}
	write := func(name, text string) {
		changed := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		noError(t, os.WriteFile(changed, []byte(text), 0o600))
		replaced[filepath.Join(root, name)] = changed
	}
	edit := func(name, pattern string, by func([]string) string) {
		text, err := os.ReadFile(filepath.Join(root, name))
		noError(t, err)
		match := regexp.MustCompile(pattern).FindStringSubmatch(string(text))
		if match == nil {
			t.Fatalf("%s has no %s", name, pattern)
		}
		write(name, strings.Replace(string(text), match[0], by(match), 1))
	}
	edit("schema.sql", `(?s)CREATE TABLE deliveries \(.*?\n\) STRICT;`, func(m []string) string {
		return strings.TrimSuffix(m[0], ") STRICT;") + "    , " + newRegion + "\n) STRICT;\n" + newRegionIndex + ";"
	})
	edit("storage/file.go", `const schemaVersion = (\d+)`, func(m []string) string {
		before, err := strconv.Atoi(m[1])
		noError(t, err)
		version = before + 1
		return "const schemaVersion = " + strconv.Itoa(version)
	})
	write("storage/next_schema.go", `package storage

import "github.com/keyhook/keyhook/storage/sqlite"

func init() {
	schemaUpgrades[schemaVersion-2] = func(t *sqlite.Tx) error {
		for _, statement := range []string{
			"ALTER TABLE deliveries ADD COLUMN `+newRegion+`",
			"UPDATE deliveries SET region = 'waiting' WHERE state IN (0, 4, 5)",
			"`+newRegionIndex+`",
		} {
			if err := t.Exec(statement); err != nil {
				return err
			}
		}
		return nil
	}
}
`)
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	noError(t, err)
	changes := filepath.Join(dir, "overlay.json")
	binary = filepath.Join(dir, "keyhook-next")
	noError(t, os.WriteFile(changes, overlay, 0o600), build(binary, underRace, "-overlay="+changes))
	return binary, version
}

// The additions of that schema.
const (
	newRegion      = "region TEXT NOT NULL DEFAULT 'none'"
	newRegionIndex = "CREATE INDEX deliveries_by_region ON deliveries (region)"
)
