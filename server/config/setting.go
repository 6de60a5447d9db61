package config

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Setting is one setting and its names.
type Setting struct {
	Name        string // dotted, as in the file
	Env         string // the name of its environment variable
	Flag        string // without hyphens
	Default     string // as text; empty for none
	Kind        string // what a value looks like
	Description string // one line
	Secret      bool   // never shown; its value may be in a file, see companion

	kind kind
}

// Effective is a setting with its value.
type Effective struct {
	Setting
	Value  string // redacted if it is a secret
	Source string // "keyhook.yaml:12", "KEYHOOK_LOG_LEVEL", "--log.level" or "default"
}

func newSetting(name, fallback string, kind kind, description string) Setting {
	return Setting{
		Name: name, Env: envPrefix + strings.ToUpper(strings.ReplaceAll(name, ".", "_")), Flag: flagName(name), Default: fallback,
		Kind: kind.label, Description: description, Secret: kind.label == secretLabel, kind: kind,
	}
}

// companion returns the setting of the file with a secret.
func (s Setting) companion() Setting {
	return newSetting(s.Name+"_file", "", text("path", checkLine), "a file with "+s.Name+", instead of the value itself; one line break at its end is ignored")
}

// takesNone reports whether an empty text is a value of the setting in a file.
func (s Setting) takesNone() bool {
	_, err := s.kind.parse("")
	return s.kind.mend == "" && (err == nil || s.Default == "")
}

// Settings returns all settings in the order of the table. A secret is followed by the setting of the file that may contain it.
func Settings() []Setting { return slices.Clone(allSettings) }

var allSettings = func() (list []Setting) {
	for _, s := range table {
		list = append(list, s)
		if s.Secret {
			list = append(list, s.companion())
		}
	}
	return list
}()

// index returns the place of a setting in allSettings; -1 if there is no such setting.
func index(name string) int {
	return slices.IndexFunc(allSettings, func(s Setting) bool { return s.Name == name })
}

// isSection reports whether a name stands before the dot in the name of a setting.
func isSection(name string) bool {
	return slices.ContainsFunc(allSettings, func(s Setting) bool { return strings.HasPrefix(s.Name, name+".") })
}

func names() (list []string) {
	for _, s := range allSettings {
		section, _, _ := strings.Cut(s.Name, ".")
		list = append(list, section, s.Name)
	}
	return list
}

const envPrefix = "KEYHOOK_"

// EnvFile is the environment variable with the path of the configuration file.
const EnvFile = envPrefix + "CONFIG"

// EnvWebhookSecret is the environment variable with the signing secret of a subscription, for commands that verify.
const EnvWebhookSecret = envPrefix + "WEBHOOK_SECRET"

// otherVariables belong to the commands that are clients or receivers, to compose.yaml, and to the tests.
var otherVariables = []string{EnvFile, EnvWebhookSecret, envPrefix + "URL", envPrefix + "TOKEN", envPrefix + "IMAGE", envPrefix + "TEST_REQUIRE"}

// unknownVariables returns a problem for each variable with our prefix that nothing reads, such as a misspelt setting. Kubernetes sets
// some in every pod for a Service whose name begins with keyhook.
func unknownVariables(environ []string) (found Problems) {
	known := slices.Clone(otherVariables)
	for _, s := range allSettings {
		known = append(known, s.Env)
	}
	slices.Sort(environ)
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(known, name) {
			continue
		}
		mend := suggest(name, known, "unset it; if Kubernetes has set it, add enableServiceLinks: false to the spec of the pod")
		found = append(found, NewProblem("", name, advise("this variable is not a setting", mend)))
	}
	return found
}

// Flags with names of their own. Every other flag has the name of its setting.
const (
	flagConfig = "config"
	flagDev    = "dev"
	flagListen = "listen"
)

func flagName(name string) string {
	if name == "server.listen" {
		return flagListen
	}
	return name
}

// Flags defines --config, --dev, --listen, and a hidden flag for each setting, such as --webhooks.timeout=5s. Forty more
// lines in the help would hide the three. --server.listen is the same flag as --listen.
func Flags(flags *pflag.FlagSet) {
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(flagName(name))
	})
	flags.String(flagConfig, "", "YAML `file` with settings (or "+EnvFile+")")
	flags.Bool(flagDev, false, "development mode: allow deliveries to http:// and to this machine, and log as text")
	for _, s := range allSettings {
		flags.String(s.Flag, s.Default, strings.Replace(s.Description, s.Kind, "`"+s.Kind+"`", 1))
		flag := flags.Lookup(s.Flag)
		flag.Hidden = s.Flag != flagListen
		if s.Default == "false" {
			flag.NoOptDefVal = "true"
		}
	}
}

// DatabaseFlags defines --config and --storage.path, for commands that look for the database of a server.
func DatabaseFlags(flags *pflag.FlagSet) {
	flags.String(flagConfig, "", "YAML `file` with settings (or "+EnvFile+")")
	s := allSettings[index("storage.path")]
	flags.String(s.Flag, s.Default, "database `file` of the server")
}

// Texts returns every setting as text, by name. Paths are absolute, because another process may read them. A secret is redacted.
func (c Config) Texts() map[string]string {
	texts := map[string]string{}
	for _, s := range table {
		text := show(c.get(s.Name))
		if s.Kind == "path" && text != "" {
			if path, err := filepath.Abs(text); err == nil {
				text = path
			}
		}
		texts[s.Name] = text
	}
	return texts
}

// WithTexts returns c with the settings that Texts of a running server has returned. It keeps its own secrets. It ignores
// settings that this version does not know. The error is Problems.
func (c Config) WithTexts(texts map[string]string) (Config, error) {
	var problems Problems
	for _, s := range table {
		text, found := texts[s.Name]
		if !found || s.Secret {
			continue
		}
		value, err := s.kind.parse(text)
		if err != nil {
			problems = append(problems, NewProblem(s.Name, "", err))
			continue
		}
		c.set(s.Name, value)
	}
	if len(problems) > 0 {
		return Config{}, problems
	}
	return c, nil
}

// Differences returns the names of the settings whose texts differ, in the order of the table.
func Differences(one, other map[string]string) (names []string) {
	for _, s := range table {
		if one[s.Name] != other[s.Name] {
			names = append(names, s.Name)
		}
	}
	return names
}

// Nearest returns the probable meaning of an unknown name, or "": the first known name that begins or ends with it, or else the known name
// with the fewest different letters. Upper case and the characters - _ . make no difference.
func Nearest(name string, known []string) (best string) {
	meant := bare(name)
	least := 2 + len(meant)/4
	for _, candidate := range known {
		text := bare(candidate)
		d := distance(meant, text)
		if len(meant) > 2 && strings.HasPrefix(text, meant) || len(meant) > 3 && strings.HasSuffix(text, meant) { // --url is no --server.base_url
			d = 0
		}
		if d < least {
			best, least = candidate, d
		}
	}
	return best
}

func bare(name string) string {
	return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(strings.TrimPrefix(name, envPrefix)))
}

// suggest returns the mend for an unknown name: the known name that was probably meant, or else the given mend.
func suggest(name string, known []string, mend string) string {
	if best := Nearest(name, known); best != "" {
		return "did you mean " + best + "? If not, " + mend
	}
	return mend
}

func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j]+1, diagonal+1, replaced)
		}
	}
	return row[len(b)]
}
