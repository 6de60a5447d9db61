package config_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/keyhook/keyhook/server/config"
)

const exampleFile = "../../config.example.yaml"

// commentedOut is a setting that is commented out.
var commentedOut = regexp.MustCompile(`(?m)^  # ([a-z_]+: \S.*)$`)

func TestTheExampleFile(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}

	t.Run("has every setting in the order of the table, commented out if it has no default, below its description", func(t *testing.T) {
		t.Parallel()
		var sections yaml.Node
		if err := yaml.Unmarshal(commentedOut.ReplaceAll(data, []byte("  $1")), &sections); err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, section := range sections.Content[0].Content {
			for j := 0; i%2 == 1 && j < len(section.Content); j += 2 {
				got = append(got, sections.Content[0].Content[i-1].Value+"."+section.Content[j].Value)
			}
		}
		var want []string
		for _, s := range config.Settings() {
			want = append(want, s.Name)
			_, key, _ := strings.Cut(s.Name, ".")
			mark := "# "
			if s.Default != "" {
				mark = ""
			}
			if strings.Contains(s.Default, ", ") { // a list
				s.Default = "[" + s.Default + "]"
			}
			if line := "  # " + s.Description + "\n  " + mark + key + ": " + s.Default; !strings.Contains(string(data), line) {
				t.Errorf("no lines:\n%s", line)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
	})
}
