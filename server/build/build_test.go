package build

import (
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDescribe is in the package, because a test binary has no version of its own.
func TestDescribe(t *testing.T) {
	t.Parallel()
	const commit = "9f55be5cb36d05b45b9e07ef2b896773febde6c0"
	git := []debug.BuildSetting{{Key: "vcs.revision", Value: commit}, {Key: "vcs.time", Value: "2026-11-26T14:23:00Z"}, {Key: "vcs.modified", Value: "false"}}
	changed := append(git[:2:2], debug.BuildSetting{Key: "vcs.modified", Value: "true"})
	for name, c := range map[string]struct {
		version  string
		settings []debug.BuildSetting
		want     Info
	}{
		"a tag":                        {"v0.1.0", git, Info{Version: "0.1.0", Commit: commit, Date: "2026-11-26T14:23:00Z"}},
		"a tag with changes":           {"v0.1.0+dirty", changed, Info{Version: "0.1.0+dirty", Commit: commit + "-dirty", Date: "2026-11-26T14:23:00Z"}},
		"a commit without a tag":       {"v0.0.0-20261126142300-9f55be5cb36d", git, Info{Version: "devel+9f55be5cb36d", Commit: commit, Date: "2026-11-26T14:23:00Z"}},
		"changes without a tag":        {"v0.0.0-20261126142300-9f55be5cb36d+dirty", changed, Info{Version: "devel+9f55be5cb36d-dirty", Commit: commit + "-dirty", Date: "2026-11-26T14:23:00Z"}},
		"a checkout without versions":  {"(devel)", git, Info{Version: "devel+9f55be5cb36d", Commit: commit, Date: "2026-11-26T14:23:00Z"}},
		"go install of a version":      {"v0.1.0", nil, Info{Version: "0.1.0", Commit: unknown, Date: unknown}},
		"a build that records nothing": {"(devel)", nil, Info{Version: "devel", Commit: unknown, Date: unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Info{Version: "devel", Commit: unknown, Date: unknown}
			got.describe(&debug.BuildInfo{Main: debug.Module{Version: c.version}, Settings: c.settings})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
