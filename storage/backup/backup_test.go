package backup_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyhook/keyhook/storage/backup"
)

func TestName(t *testing.T) {
	t.Parallel()
	at := time.Date(2031, 2, 3, 4, 5, 6, 7e6, time.FixedZone("", 3600))
	if got := backup.Name("keyhook.db", at); got != "keyhook-20310203-030506.007.db" {
		t.Errorf("named %s", got)
	}
	var names []string
	for i := range 100 {
		names = append(names, backup.Name("a", at.Add(time.Duration(i)*7*time.Hour)))
	}
	if !slices.IsSorted(names) {
		t.Errorf("not in the order of time: %v", names)
	}
	for _, name := range names {
		if !backup.IsDated(name, "a") || !backup.IsDated(name, "a.db") || backup.IsDated(name, "b") {
			t.Errorf("%s is told wrong", name)
		}
	}
	for _, name := range []string{"", "a.db", "a-.db", "a-20310203.db", "a-20310203-030506.007", "a-20310203-030506.007.db.partial", "ab-20310203-030506.007.db"} {
		if backup.IsDated(name, "a.db") {
			t.Errorf("%q passes for one of ours", name)
		}
	}
}

func TestValidName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a.db": true, "nightly_2.db": true, "A-1.2.db": true, strings.Repeat("a", 100) + ".db": true,
		"": false, ".db": false, "a": false, "a.DB": false, "../a.db": false, "/a.db": false, "a/b.db": false, `a\b.db`: false,
		"..db": false, "-a.db": false, "a.db.key": false, "a.db\n": false, "a\x00.db": false, "ä.db": false, strings.Repeat("a", 101) + ".db": false,
	} {
		if backup.ValidName(name) != want {
			t.Errorf("%q: want %v", name, want)
		}
	}
}
