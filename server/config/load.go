package config

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

const fromDefault = "default"

// Load reads the settings: flags before KEYHOOK_* of the environment, before the file that --config or KEYHOOK_CONFIG
// names, before the defaults. flags has what Flags defined, or is nil for none. A variable that is empty counts as not
// set. The error is Problems, with all that is wrong at once.
func Load(flags *pflag.FlagSet) (Config, error) {
	c, _, err := load(flags)
	return c, err
}

// Explain loads as Load does, and returns the value of each setting with the place it came from. Secrets are redacted.
func Explain(flags *pflag.FlagSet) ([]Effective, error) {
	c, source, err := load(flags)
	if err != nil {
		return nil, err
	}
	list := make([]Effective, len(table))
	for i, s := range table {
		known, _ := find(s.name)
		list[i] = Effective{known, s.value.text(&c), source[s.name]}
	}
	return list, nil
}

func load(flags *pflag.FlagSet) (Config, map[string]string, error) {
	path, by := filePath(flags)
	file := readDocument(path, by)
	l := loader{layers: layers(flags, file), flags: flags, file: file}
	found := append(file.problems, strayEnvironment(os.Environ())...)

	c := Default()
	bad, source := map[string]bool{}, map[string]string{}
	for _, s := range table {
		text, from, err := l.text(s)
		source[s.name] = from
		if err == nil {
			err = s.value.set(&c, text)
		}
		if err != nil {
			bad[s.name] = true
			found = append(found, Problem{s.name, from, err.Error()})
		}
	}
	found = append(found, c.problems(bad, func(name string) string { return source[name] })...)
	if len(found) > 0 {
		slices.SortStableFunc(found, func(a, b Problem) int { return order(a.Setting) - order(b.Setting) })
		return Config{}, nil, found
	}
	if isDev(flags) {
		c = overlay(c, source)
	}
	return c, source, nil
}

// layers hands the sources to viper, which knows their order. Keys are bound one by one, never by AutomaticEnv: a
// variable named as a section would replace the whole of it. For the same reason keys are flat: nothing splits at dots.
func layers(flags *pflag.FlagSet, file *document) *viper.Viper {
	v := viper.NewWithOptions(viper.KeyDelimiter("/"))
	for _, s := range Settings() {
		v.SetDefault(s.Name, s.Default)
		must(v.BindEnv(s.Name, s.Env))
		if flag := lookup(flags, s.Flag); flag != nil {
			must(v.BindPFlag(s.Name, flag))
		}
	}
	fromFile := make(map[string]any, len(file.texts))
	for name, text := range file.texts {
		fromFile[name] = text
	}
	must(v.MergeConfigMap(fromFile))
	return v
}

// must is for errors that viper documents for wrong arguments only.
func must(err error) {
	if err != nil {
		panic("config: " + err.Error())
	}
}

type loader struct {
	layers *viper.Viper
	flags  *pflag.FlagSet
	file   *document
}

// text returns what a setting is set to and where. The text of a secret may come out of a file of its own.
func (l loader) text(s setting) (text, source string, err error) {
	source = l.source(s.name)
	if !s.secret {
		return l.layers.GetString(s.name), source, nil
	}
	fileSource := l.source(s.companion())
	switch {
	case source != fromDefault && fileSource != fromDefault:
		return "", source, fmt.Errorf("is set beside %s (%s); keep one of the two", s.companion(), fileSource)
	case fileSource != fromDefault:
		text, err = readSecret(l.layers.GetString(s.companion()))
		return text, fileSource, err
	}
	text = l.layers.GetString(s.name)
	if source != fromDefault && text == "" {
		return "", source, errors.New("is empty; give it a value, or leave it out")
	}
	return text, source, nil
}

// source names the place that viper took a setting from.
func (l loader) source(name string) string {
	s, _ := find(name)
	if flag := lookup(l.flags, s.Flag); flag != nil && flag.Changed {
		return "--" + s.Flag
	}
	if os.Getenv(s.Env) != "" {
		return s.Env
	}
	if place, set := l.file.places[name]; set {
		return place
	}
	return fromDefault
}

// overlay is Dev for a loaded configuration: a log format that someone asked for stays.
func overlay(c Config, source map[string]string) Config {
	dev := c.Dev()
	source["egress.allow_http"], source["egress.allowed_networks"] = "--"+flagDev, "--"+flagDev
	if source["log.format"] == fromDefault {
		source["log.format"] = "--" + flagDev
	} else {
		dev.Log.Format = c.Log.Format
	}
	return dev
}

// filePath returns the file to read and who named it; no path where nobody did. There is no search in well-known places:
// which file counts must not depend on where the process was started.
func filePath(flags *pflag.FlagSet) (path, source string) {
	if flag := lookup(flags, flagConfig); flag != nil && flag.Changed {
		return flag.Value.String(), "--" + flagConfig
	}
	return os.Getenv(EnvFile), EnvFile
}

func isDev(flags *pflag.FlagSet) bool {
	flag := lookup(flags, flagDev)
	return flag != nil && flag.Value.String() == "true"
}

func lookup(flags *pflag.FlagSet, name string) *pflag.Flag {
	if flags == nil {
		return nil
	}
	return flags.Lookup(name)
}
