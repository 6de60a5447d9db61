// Package build reads what this binary was built from. It knows nothing else.
package build

import (
	"runtime"
	"runtime/debug"
)

// Info says what a binary was built from. It has the two modules of the SQLite driver, because they must match: that is the first
// thing to check after a crash in SQLite.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // with "-dirty" if the tree had changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
	SQLite   string `json:"modernc_sqlite"`
	Libc     string `json:"modernc_libc"`
}

const unknown = "unknown"

// Read returns the build of this binary. What the binary does not have is "unknown".
func Read() Info {
	b := Info{Version: unknown, Revision: unknown, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
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
