package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/keyhook/keyhook/storage/disk"
)

// prune removes the oldest dated copies, so that keep of them are left, and returns their names. The copy that was just made
// stays, even if the clock was set back and it looks the oldest. Files of other users are neither counted nor removed.
func prune(made, database string, keep int) ([]string, error) {
	if keep <= 0 {
		return nil, nil
	}
	dir := filepath.Dir(made)
	entries, err := os.ReadDir(dir) // sorted by name, and so by time
	if err != nil {
		return nil, fmt.Errorf("look for older copies: %w", err)
	}
	var dated, removed []string
	for _, e := range entries {
		if IsDated(e.Name(), database) && e.Name() != filepath.Base(made) && disk.IsOwn(filepath.Join(dir, e.Name())) {
			dated = append(dated, e.Name())
		}
	}
	for _, name := range dated[:max(0, len(dated)-(keep-1))] {
		if failed := disk.Remove(filepath.Join(dir, name)); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		removed = append(removed, name)
	}
	return removed, err
}
