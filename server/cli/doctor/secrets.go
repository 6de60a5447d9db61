package doctor

import (
	"encoding/base64"
	"os"
	"strings"
	"unicode"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/redact"
)

// secretSettings are the settings whose value is never shown, so nobody can see a mistake in them.
var secretSettings = []string{"encryption.key", "bootstrap.token"}

// checkSecrets checks the secrets for damage by shells, editors and manifests.
func (r *report) checkSecrets(c config.Config) {
	found := false
	for name, secret := range map[string]redact.Text{"encryption.key": c.Encryption.Key, "bootstrap.token": c.Bootstrap.Token} {
		if secret.IsZero() {
			continue
		}
		if defect := defectOf(secret.Reveal()); defect != "" {
			found = true
			r.warning("secrets", "check where the secret is set, but do not change the key of an existing database", "%s: %s", name, defect)
		}
	}
	if !found {
		r.ok("secrets", "The secrets in the settings look right.")
	}
}

// defectOfSetting returns the defect of a secret that was refused, as it stands in the environment or in its file.
func defectOfSetting(setting string) string {
	for _, name := range secretSettings {
		if setting != name {
			continue
		}
		env := "KEYHOOK_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
		if text := os.Getenv(env); text != "" {
			return defectOf(text)
		}
		if file := os.Getenv(env + "_FILE"); file != "" {
			if text, err := os.ReadFile(file); err == nil {
				return defectOf(strings.TrimSuffix(string(text), "\n"))
			}
		}
	}
	return ""
}

// defectOf says what seems to be wrong with the text of a secret, without showing any of it. It returns "" if nothing is.
func defectOf(text string) string {
	trimmed := strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(text, "\ufeff"):
		return "the value begins with a byte order mark, which some editors write"
	case strings.ContainsAny(trimmed, "\r\n"):
		return "the value has more than one line"
	case trimmed != text:
		return "the value has white space around it"
	case strings.HasSuffix(text, `\n`):
		return `the value ends with the two characters \n instead of a line break`
	case len(text) > 1 && strings.ContainsRune(`"'`, rune(text[0])) && text[len(text)-1] == text[0]:
		return "the value includes the quotes around it"
	case strings.HasPrefix(text, "${") || strings.HasPrefix(text, "$("):
		return "the value looks like a variable that was not replaced"
	}
	inner, err := base64.StdEncoding.DecodeString(text)
	if err == nil && len(inner) >= 16 && !strings.ContainsFunc(strings.TrimSuffix(string(inner), "\n"), func(r rune) bool { return r > '~' || !unicode.IsPrint(r) }) {
		return "the value looks like base64 of another text (Kubernetes needs base64 under data, and plain text under stringData)"
	}
	if countDistinct(text) < 8 {
		return "the value has fewer than 8 different characters, so it is easy to guess"
	}
	return ""
}

func countDistinct(text string) int {
	seen := map[rune]bool{}
	for _, r := range text {
		seen[r] = true
	}
	return len(seen)
}
