package config

// Default returns the defaults of all settings.
func Default() Config {
	var c Config
	for _, s := range table {
		value, err := s.kind.parse(s.Default)
		if err != nil {
			panic("config: default of " + s.Name + ": " + err.Error()) // the table is wrong
		}
		c.set(s.Name, value)
	}
	return c
}
