package config

import "github.com/spf13/pflag"

// The flags with names of their own. Every other is named as its setting.
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

// Flags defines --config, --dev and --listen on fs, and a hidden flag per setting, as --webhooks.timeout=5s: forty more
// lines would bury the three in the help. --server.listen is --listen.
func Flags(fs *pflag.FlagSet) {
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(flagName(name))
	})
	fs.String(flagConfig, "", "read settings from this YAML `file` (or "+EnvFile+")")
	fs.Bool(flagDev, false, "for development: deliver to http:// and to this machine too, and log as text")
	for _, s := range Settings() {
		f := fs.VarPF(&given{text: s.Default, kind: s.Kind}, s.Flag, "", s.Why)
		f.Hidden = s.Flag != flagListen
		if s.Kind == kindBoolean {
			f.NoOptDefVal = "true"
		}
	}
}

// DatabaseFlags defines --config and --storage.path on fs, for commands that look for the database of a server.
func DatabaseFlags(fs *pflag.FlagSet) {
	fs.String(flagConfig, "", "read settings from this YAML `file` (or "+EnvFile+")")
	s, _ := find("storage.path")
	fs.Var(&given{text: s.Default, kind: "file"}, s.Flag, "call the server that owns this database")
}

// given is the value of a flag as it was written. It is checked with everything else by Load, so that all problems are
// reported at once.
type given struct {
	text string
	kind string
}

func (g *given) Set(text string) error { g.text = text; return nil }
func (g *given) String() string        { return g.text }
func (g *given) Type() string          { return g.kind }
