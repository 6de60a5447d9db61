package storagetest_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/sqlite"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// recorder is a test that notes its errors instead of failing.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// TestALateRefusalFailsTheTest has writes that are refused before and after their first change of a row.
func TestALateRefusalFailsTheTest(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		statement string
		errors    int
	}{
		"before": {"UPDATE plans SET name = name WHERE id < 0", 0},
		"after":  {"UPDATE plans SET name = name WHERE id > 0", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{TB: t}
			store, stop := storagetest.OpenWith(t, storagetest.Options(r, filepath.Join(t.TempDir(), "keyhook.db")))
			err := store.File.Write(t.Context(), sqlite.Work{}, func(tx *sqlite.Tx) error {
				if err := tx.Exec(tt.statement); err != nil {
					t.Error(err)
				}
				return fault.Missing("thing")
			})
			stop() // then nobody writes errors any more
			if fault.KindOf(err) != fault.NotFound {
				t.Errorf("error %v", err)
			}
			if len(r.errors) != tt.errors || tt.errors > 0 && !strings.HasPrefix(r.errors[0], sqlite.LateRefusal) {
				t.Errorf("the test fails with %q", r.errors)
			}
		})
	}
}
