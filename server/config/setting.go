package config

import (
	"slices"
	"strings"
)

// Setting is what may be said about one name: for documents, tests and `config show`.
type Setting struct {
	Name    string // dotted, as in the file
	Env     string // as in the environment
	Flag    string // without its hyphens
	Default string // as text; empty for none
	Kind    string // what a value looks like
	Why     string // what it is for, in a line
	Secret  bool   // never shown
}

// Effective is a setting with its value as it is in force.
type Effective struct {
	Setting
	Value  string // redacted where it is a secret
	Source string // "keyhook.yaml:12", "KEYHOOK_LOG_LEVEL", "--log.level" or "default"
}

// Settings returns every name there is, in the order of the table. A secret is followed by the setting of the file that
// may hold it.
func Settings() []Setting { return slices.Clone(all) }

var all = func() []Setting {
	var list []Setting
	for _, s := range table {
		list = append(list, Setting{s.name, s.env(), flagName(s.name), s.fallback, s.value.kind(), s.why, s.secret})
		if s.secret {
			name := s.companion()
			list = append(list, Setting{name, envName(name), flagName(name), "", kindText,
				"a file that holds " + s.name + ", in place of it; one line break at its end is not part of it", false})
		}
	}
	return list
}()

// order is the place of a setting in the table, or -1 where there is none of that name.
func order(name string) int {
	return slices.IndexFunc(all, func(s Setting) bool { return s.Name == name })
}

func find(name string) (Setting, bool) {
	if i := order(name); i >= 0 {
		return all[i], true
	}
	return Setting{}, false
}

// sections are the names before the dots.
func sections() []string {
	var list []string
	for _, s := range all {
		section, _, _ := strings.Cut(s.Name, ".")
		list = append(list, section)
	}
	return slices.Compact(list)
}

func isSection(name string) bool { return slices.Contains(sections(), name) }
