package config

import "path/filepath"

// Texts returns every setting as text, by name. Paths are absolute, because another process may read them. A secret is
// redacted.
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
