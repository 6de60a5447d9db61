package platform_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/storagetest"
)

func TestBackups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, _ := storagetest.OpenWith(t, storagetest.Options(t, filepath.Join(dir, "keyhook.db")))
	f := servertest.Start(t, func(o *server.Options) { o.Store = store })
	of := filepath.Join(dir, "backups")
	f.Run(t, map[string]string{"as": servertest.Operator}, []servertest.Scenario{
		servertest.OK("without a body it gets a dated name", "POST /api/v1/backups/", "", 201,
			`{"file":"keyhook-20`, `"bytes":`, `"sha256":"`, `"duration_ms":`, `"encryption_key_id":"`, `"created_at":"20`, `"events":1`, `"removed":[]`),
		servertest.OK("it may be named", "POST /api/v1/backups/", `{"file":"nightly.db"}`, 201, `"file":"nightly.db"`),
		servertest.Bad("the name of a copy is used once", "POST /api/v1/backups/", `{"file":"nightly.db"}`, 409, "already_exists", `"conflicting_id":"nightly.db"`),
		servertest.Bad("the name of a copy has no directory", "POST /api/v1/backups/", `{"file":"../elsewhere.db"}`, 422, "validation_failed", `"field":"file"`),
		servertest.Bad("the name of a copy is no absolute path", "POST /api/v1/backups/", `{"file":"/tmp/elsewhere.db"}`, 422, "validation_failed", `"field":"file"`),
		servertest.Bad("only dated copies are counted", "POST /api/v1/backups/", `{"file":"a.db","keep":1}`, 422, "validation_failed", `"field":"keep"`),
		servertest.Bad("at least one copy is kept", "POST /api/v1/backups/", `{"keep":0}`, 422, "validation_failed", "out_of_range"),
		servertest.OK("older dated copies are removed", "POST /api/v1/backups/", `{"keep":1}`, 201, `"removed":["keyhook-20`, `"warning":null`),
		servertest.OK("it is in the audit log", "GET /api/v1/audit-events/?type=backup_created&limit=1", "", 200, `"target":{"type":"backup","id":"keyhook-20`),
	})
	entries, err := os.ReadDir(of)
	if err != nil || len(entries) != 2 {
		t.Errorf("there are %v, error %v", entries, err)
	}
	if info, err := os.Stat(of); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, error %v", info, err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "elsewhere.db")); len(left) > 0 {
		t.Errorf("it wrote %v", left)
	}
}
