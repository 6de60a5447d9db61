package leak_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/keyhook/keyhook/server/cli/leak"
	"github.com/keyhook/keyhook/storage/access"
)

// printed returns what the command prints.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := leak.New()
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// between returns the text after the first mark, up to the end.
func between(text, mark, end string) string {
	_, text, _ = strings.Cut(text, mark)
	text, _, _ = strings.Cut(text, end)
	return text
}

// TestRules reads the regular expression out of each rule, and tries it on a file with a new credential, and with what is almost one.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{access.DefaultKeyPrefix, "acme"} {
		flag := "--keys.prefix=" + prefix
		all := printed(t, flag)
		github := printed(t, "github", flag)
		before, secret, after := between(github, "Before secret: ", "\n"), between(github, "Secret format: ", "\n"), between(github, "After secret:  ", "\n")
		var trufflehog struct {
			Detectors []struct {
				Name     string
				Keywords []string
				Regex    map[string]string
			}
		}
		if err := yaml.Unmarshal([]byte(printed(t, "trufflehog", flag)), &trufflehog); err != nil || len(trufflehog.Detectors) != 1 {
			t.Fatalf("%+v, error %v", trufflehog, err)
		}
		gitleaks := printed(t, "gitleaks", flag)
		if words := trufflehog.Detectors[0].Keywords; strings.Join(words, " ") != prefix+"_ kat_" || !strings.Contains(gitleaks, `keywords = ["`+prefix+`_", "kat_"]`) {
			t.Errorf("keywords %q in\n%s", words, gitleaks)
		}
		for scanner, text := range map[string]string{
			"gitleaks": between(gitleaks, "regex = '''", "'''\n"), "trufflehog": trufflehog.Detectors[0].Regex["credential"],
			"github": "(?:" + before + ")(" + secret + ")(?:" + after + ")",
		} {
			if !strings.Contains(all, strings.TrimSpace(printed(t, scanner, flag))) {
				t.Errorf("without an argument, there is no rule for %s", scanner)
			}
			pattern := regexp.MustCompile(text)
			for range 100 {
				for _, raw := range []string{access.Mint(prefix).Reveal(), access.Mint(access.TokenPrefix).Reveal()} {
					for _, line := range []string{raw, "KEY=" + raw + "\n", `{"key":"` + raw + `"}`, "Authorization: ApiKey " + raw, "https://x.example/?key=" + raw + "&a=b"} {
						if found := pattern.FindStringSubmatch(line); found == nil || found[1] != raw {
							t.Errorf("%s: no %s in %q", scanner, raw, line)
						}
					}
					for _, line := range []string{raw[:len(raw)-1], raw + "0", "x" + raw, "_" + raw, raw + "_", access.Mint("other").Reveal(), "key_01h455vb4pex5vsknk084sn02q"} {
						if pattern.MatchString(line) {
							t.Errorf("%s: a match in %q", scanner, line)
						}
					}
				}
			}
		}
	}
}

func TestUnknownScanner(t *testing.T) {
	t.Parallel()
	cmd := leak.New()
	cmd.SetArgs([]string{"other"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "gitleaks, trufflehog, github") {
		t.Errorf("error %v", err)
	}
}
