package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/keyhook/keyhook/storage/disk"
)

const (
	goingSuffix = ".removed"
	shrinkStep  = 8 << 20
	shrinkPause = 20 * time.Millisecond
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
		name, going := strings.CutSuffix(e.Name(), goingSuffix)
		switch {
		case !IsDated(name, database) || e.Name() == filepath.Base(made) || !disk.IsOwn(filepath.Join(dir, e.Name())):
		case going: // an earlier run was interrupted while it removed this file
			err = errors.Join(err, shrinkAway(filepath.Join(dir, e.Name())))
		default:
			dated = append(dated, name)
		}
	}
	for _, name := range dated[:max(0, len(dated)-(keep-1))] {
		old := filepath.Join(dir, name)
		if failed := os.Rename(old, old+goingSuffix); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		err = errors.Join(err, shrinkAway(old+goingSuffix))
		removed = append(removed, name)
	}
	return removed, err
}

// shrinkAway removes a file piece by piece. Some file systems block every fsync while they free a large file.
func shrinkAway(path string) error {
	f, err := disk.OpenOwn(path, os.O_WRONLY)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		tick := time.NewTicker(shrinkPause)
		defer tick.Stop()
		for size := info.Size() - shrinkStep; err == nil && size > 0; size -= shrinkStep {
			err = f.Truncate(size)
			<-tick.C
		}
	}
	return errors.Join(err, f.Close(), disk.Remove(path))
}
