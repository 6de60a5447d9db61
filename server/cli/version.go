package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
)

// build says what the binary was built from. It has the two modules of the SQLite driver, because they must match: that is the
// first thing to check after a crash in SQLite.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // with "-dirty" if the tree had changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
	SQLite   string `json:"modernc_sqlite"`
	Libc     string `json:"modernc_libc"`
}

const unknown = "unknown"

func readBuild() build {
	b := build{Version: unknown, Revision: unknown, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		SQLite: unknown, Libc: unknown}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	b.Revision += dirty
	for _, m := range info.Deps {
		version := m.Version
		if m.Replace != nil {
			version = m.Replace.Path + " " + m.Replace.Version
		}
		switch m.Path {
		case "modernc.org/sqlite":
			b.SQLite = version
		case "modernc.org/libc":
			b.Libc = version
		}
	}
	return b
}

func newVersion() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version and the build of this binary",
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := readBuild()
			if asJSON {
				return output.WriteJSON(cmd.OutOrStdout(), b)
			}
			t := output.Table{}
			t.Add("keyhook", b.Version)
			t.Add("revision", b.Revision)
			t.Add("go", b.Go+" "+b.Platform)
			t.Add("modernc.org/sqlite", b.SQLite)
			t.Add("modernc.org/libc", b.Libc)
			return t.Write(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}
