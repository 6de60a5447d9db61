package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestServiceUnit lets systemd check the unit of the documents: its settings, and how much the service may do.
func TestServiceUnit(t *testing.T) {
	t.Parallel()
	analyze := tool(t, "systemd-analyze")
	text, err := os.ReadFile("../docs/keyhook.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "keyhook.service")
	installed := strings.ReplaceAll(string(text), "/usr/local/bin/keyhook", program())
	if err := os.WriteFile(unit, []byte(installed), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify", unit}, {"security", "--offline=true", "--threshold=20", unit}} { // 2.0 of 10
		out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
