package config

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/keyhook/keyhook/storage/fault"
)

const fromDefault = "default"

// Load reads the settings from the flags, the environment, the file that --config or KEYHOOK_CONFIG names, and the defaults,
// in this order of precedence. flags were defined by Flags; nil means none. An empty variable counts as not set. The error
// is Problems, with all problems at once.
func Load(flags *pflag.FlagSet) (Config, error) { return newLoader(flags).load() }

// Sources loads the settings like Load, and returns the value and the source of each. Secrets are redacted.
func Sources(flags *pflag.FlagSet) ([]Effective, error) {
	l := newLoader(flags)
	c, err := l.load()
	if err != nil {
		return nil, err
	}
	var list []Effective
	for _, s := range table {
		list = append(list, Effective{s, show(c.get(s.Name)), l.sources[s.Name]})
	}
	return list, nil
}

type loader struct {
	flags    *pflag.FlagSet
	file     *file
	viper    *viper.Viper
	sources  map[string]string // by setting
	problems Problems
}

// newLoader gives viper all sources. Viper knows their precedence. Each variable is bound by its name, because with
// AutomaticEnv a variable such as KEYHOOK_WEBHOOKS would replace a whole section.
func newLoader(flags *pflag.FlagSet) *loader {
	if flags == nil {
		flags = pflag.NewFlagSet("", pflag.ContinueOnError)
		Flags(flags)
	}
	l := &loader{flags: flags, file: &file{}, viper: viper.New(), sources: map[string]string{}}
	l.bind(configFile)
	for _, s := range allSettings {
		l.bind(s)
	}
	l.file = readFile(l.viper.GetString(configFile.Name), l.source(configFile))
	_ = l.viper.MergeConfigMap(l.file.texts) // it returns no error
	return l
}

// configFile is the path of the file. Keyhook searches no well-known places: the settings must not depend on the working directory.
var configFile = Setting{Name: flagConfig, Env: EnvFile, Flag: flagConfig}

func (l *loader) bind(s Setting) {
	l.viper.SetDefault(s.Name, s.Default)
	l.viper.MustBindEnv(s.Name, s.Env)
	if flag := l.flags.Lookup(s.Flag); flag != nil {
		_ = l.viper.BindPFlag(s.Name, flag) // it fails only without a flag
	}
}

func (l *loader) load() (c Config, err error) {
	l.problems = append(l.file.problems, unknownVariables(os.Environ())...)
	failed := map[string]bool{}
	for _, s := range table {
		text, err := l.text(s)
		var value any
		if err == nil {
			value, err = s.kind.parse(text)
		}
		if err != nil {
			failed[s.Name] = true
			l.wrong(s.Name, err)
			continue
		}
		c.set(s.Name, value)
	}
	for _, r := range rules {
		if !slices.ContainsFunc(r.names, func(name string) bool { return failed[name] }) && r.isBroken(c) {
			l.wrong(r.names[0], advise(r.what, r.mend))
		}
	}
	if len(l.problems) > 0 {
		slices.SortStableFunc(l.problems, func(a, b Problem) int { return index(a.Setting) - index(b.Setting) })
		return Config{}, l.problems
	}
	c.Files = []string{l.viper.GetString(configFile.Name), c.Server.TLSKeyFile}
	for _, s := range table {
		if s.Secret {
			c.Files = append(c.Files, l.viper.GetString(s.companion().Name))
		}
	}
	if dev, _ := l.flags.GetBool(flagDev); dev {
		c = l.dev(c)
	}
	return c, nil
}

// wrong adds the problems of a setting. An error may join several.
func (l *loader) wrong(name string, err error) {
	if joined, isJoined := err.(interface{ Unwrap() []error }); isJoined {
		for _, one := range joined.Unwrap() {
			l.wrong(name, one)
		}
		return
	}
	l.problems = append(l.problems, NewProblem(name, l.sources[name], err))
}

func (l *loader) text(s Setting) (string, error) {
	text, source := l.viper.GetString(s.Name), l.source(s)
	l.sources[s.Name] = source
	if !s.Secret {
		return text, nil
	}
	companion := s.companion()
	switch from := l.source(companion); {
	case source == fromDefault && from == fromDefault:
		return "", nil
	case source == fromDefault:
		l.sources[s.Name] = from
		return SecretFile(l.viper.GetString(companion.Name))
	case from != fromDefault:
		return "", advise(companion.Name+" ("+from+") is set too", "remove one of the two")
	case text == "":
		return "", advise("the value is empty", "write a value, or remove the setting")
	}
	return text, nil
}

// source returns where viper got the value of a setting, which viper does not tell.
func (l *loader) source(s Setting) string {
	switch place, inFile := l.file.places[s.Name]; {
	case l.flags.Changed(s.Flag):
		return "--" + s.Flag
	case os.Getenv(s.Env) != "":
		return s.Env
	case inFile:
		return place
	}
	return fromDefault
}

// dev applies Dev. A log format that was set stays.
func (l *loader) dev(c Config) Config {
	format := c.Log.Format
	c = c.Dev()
	changed := []string{"egress.allow_http", "egress.allowed_networks", "log.format"}
	if l.sources["log.format"] != fromDefault {
		c.Log.Format, changed = format, changed[:2]
	}
	for _, name := range changed {
		l.sources[name] = "--" + flagDev
	}
	return c
}

// Problem is one wrong setting. It never contains the text of a secret.
type Problem struct {
	Setting string // dotted name; empty if there is no such setting
	Source  string // "keyhook.yaml:12", "KEYHOOK_LOG_LEVEL" or "--log.level"; empty if none is known
	What    string // what is wrong
	Mend    string // what to write instead; may be empty
}

// NewProblem makes a Problem from an error. The mend comes from the fault.Advice in the error.
func NewProblem(setting, source string, err error) Problem {
	what, mend := fault.Split(err)
	return Problem{setting, source, what, mend}
}

// Where returns the setting and its source.
func (p Problem) Where() string {
	switch {
	case p.Setting == "" || p.Source == "--"+p.Setting: // a flag with the name of the setting
		return p.Source
	case p.Source == "" || p.Source == fromDefault:
		return p.Setting
	}
	return p.Setting + " (" + p.Source + ")"
}

// String returns the problem in one line.
func (p Problem) String() string {
	text := p.Where() + ": " + p.What
	if p.Mend != "" {
		text += "; " + p.Mend
	}
	return text
}

// Problems are all wrong settings. Load returns it as its error. Find it with errors.As.
type Problems []Problem

// Error returns one line for a single problem. For several it returns a line with their number, and one line for each.
func (p Problems) Error() string {
	if len(p) == 1 {
		return "wrong setting: " + p[0].String()
	}
	lines := []string{fmt.Sprintf("%d wrong settings:", len(p))}
	for _, problem := range p {
		lines = append(lines, problem.String())
	}
	return strings.Join(lines, "\n  ")
}
