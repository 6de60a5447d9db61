// Package build owns what this binary was built from: its versions, and the licences of its libraries. It knows nothing else.
package build

import (
	_ "embed" // for the licences
	"runtime"
	"runtime/debug"
	"strings"

	sqlite "modernc.org/sqlite/lib"
)

// version is the tag of a release. The release sets it with -ldflags "-X …/server/build.version=v0.1.0".
var version string

// Info says what a binary was built from. It has the two modules of the SQLite driver, because they must match: that is the first
// thing to check after a crash in SQLite.
type Info struct {
	Version  string `json:"version"` // without the "v" of the tag; "devel+COMMIT" for a commit without a tag
	Commit   string `json:"commit"`  // with "-dirty" if the tree had changes
	Date     string `json:"date"`    // of the commit, in the form of RFC 3339
	Go       string `json:"go"`
	Platform string `json:"platform"`
	SQLite   string `json:"sqlite"`
	Driver   string `json:"modernc_sqlite"`
	Libc     string `json:"modernc_libc"`
}

const unknown = "unknown"

// Read returns the build of this binary. What the binary does not have is "unknown".
func Read() Info {
	b := Info{Version: "devel", Commit: unknown, Date: unknown, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		SQLite: sqlite.SQLITE_VERSION, Driver: unknown, Libc: unknown}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.describe(info)
	}
	if version != "" {
		b.Version = strings.TrimPrefix(version, "v")
	}
	return b
}

// describe takes what the Go command has recorded. For a commit without a tag, it records a version that is made of the commit.
func (b *Info) describe(info *debug.BuildInfo) {
	short, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Commit, short = s.Value, s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.time":
			b.Date = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	b.Commit += dirty
	switch tag := info.Main.Version; {
	case short != "" && (tag == "(devel)" || strings.Contains(tag, short)):
		b.Version = "devel+" + short + dirty
	case tag != "" && tag != "(devel)":
		b.Version = strings.TrimPrefix(tag, "v")
	}
	for _, m := range info.Deps {
		used := m.Version
		if m.Replace != nil {
			used = m.Replace.Path + " " + m.Replace.Version
		}
		switch m.Path {
		case "modernc.org/sqlite":
			b.Driver = used
		case "modernc.org/libc":
			b.Libc = used
		}
	}
}

// Licenses lists the libraries in this binary, with the texts of their licences. A test writes the file and compares it.
//
//go:embed licenses.txt
var Licenses string
