package doctor

import (
	"cmp"
	"encoding/base64"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage/redact"
)

// checkSettings reports the problems of the settings, and whether there are none.
func (r *report) checkSettings(flags *pflag.FlagSet) (areValid bool) {
	list, err := config.Sources(flags)
	if err != nil {
		r.failure("settings", err)
		return false
	}
	var changed []string
	for _, s := range list {
		if s.Source != "default" {
			changed = append(changed, s.Name)
		}
	}
	text := "All settings have their defaults."
	if len(changed) > 0 {
		text = "Changed from the defaults: " + strings.Join(changed, ", ")
	}
	r.ok("settings", "The settings are valid. %s", text)
	return true
}

// checkSecrets checks the secrets whose value is never shown for damage by shells, editors and manifests. A secret that was refused is
// not in c, so this reads it from the environment or from its file.
func (r *report) checkSecrets(c config.Config) {
	found := false
	for name, secret := range map[string]redact.Text{"encryption.key": c.Encryption.Key, "bootstrap.token": c.Bootstrap.Token} {
		env := "KEYHOOK_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
		content, _ := os.ReadFile(os.Getenv(env + "_FILE")) // the problem of the setting says what is wrong with the file
		text := cmp.Or(secret.Reveal(), os.Getenv(env), strings.TrimSuffix(string(content), "\n"))
		if defect := defectOf(text); defect != "" {
			found = true
			r.warning("secrets", "check where the secret is set, but do not change the key of an existing database", "%s: %s", name, defect)
		}
	}
	if !found {
		r.ok("secrets", "The secrets in the settings look right.")
	}
}

// defectOf says what seems to be wrong with the text of a secret, without showing any of it. It returns "" if nothing is, and for no
// secret.
func defectOf(text string) string {
	trimmed := strings.TrimSpace(text)
	distinct := slices.Compact(slices.Sorted(slices.Values([]rune(text))))
	inner, err := base64.StdEncoding.DecodeString(text)
	isBinary := func(r rune) bool { return r > '~' || !unicode.IsPrint(r) }
	switch {
	case text == "":
		return ""
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
	case err == nil && len(inner) >= 16 && !strings.ContainsFunc(strings.TrimSuffix(string(inner), "\n"), isBinary):
		return "the value looks like base64 of another text (Kubernetes needs base64 under data, and plain text under stringData)"
	case len(distinct) < 8:
		return "the value has fewer than 8 different characters, so it is easy to guess"
	}
	return ""
}
