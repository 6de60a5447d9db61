package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhook/keyhook/storage/storagetest"
)

// released has the golden file of each schema, and its SHA-256. Once a version with a schema is released, its line never changes. A new
// schema adds a line: go test ./server/e2e -run TestGoldenFile -update
var released = map[string]string{
	"testdata/v1.tar.gz": "b1c526b12c39e821d295c0241d6870e63e30a3f58e28cfde52557e94a1b014eb",
}

// goldenFile is what the program left when it was killed under load: the files of a database, and what a person knew about it.
type goldenFile struct {
	database map[string][]byte // by the name of the file

	Operator      string                      // an access token without an end
	Publisher     string                      // the header Authorization of a key that may publish
	Repeated      object                      // an event that was published with an idempotency key
	RepeatedID    string                      // its id
	Keys          []keptKey                   // in any state
	Subscriptions map[string]keptSubscription // by id
	Content       map[string]any              // what the API said after the next start
}

// keptKey is a question about a key, and the code of the answer.
type keptKey struct {
	Ask  object
	Code string
}

// keptSubscription is what only its owner knows.
type keptSubscription struct {
	Name, Secret, Organization string
	Headers                    map[string]string
}

// keepAll are settings with which no row is too old. A file that has not been used for an hour puts the clock in doubt, too, and then
// nothing is deleted by age.
var keepAll = []string{"KEYHOOK_STORAGE_RETENTION_EVENTS=3650d", "KEYHOOK_STORAGE_RETENTION_AUDIT=36500d"}

// TestGoldenFile starts the program on the file of each schema. Everything must read as it did, keys must open the same doors, and
// what waited must arrive with the right signatures. The same must be true after an upgrade to a schema that does not exist yet.
func TestGoldenFile(t *testing.T) {
	t.Parallel()
	if *update {
		makeGolden(t)
	}
	next, version := buildNext(t)
	if name := goldenName(version - 1); released[name] == "" {
		t.Errorf("the list has no %s: write it with -update, and add its line", name)
	}
	for name, digest := range released {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := readGolden(t, name, digest)
			t.Run("this version reads it and delivers what waits", func(t *testing.T) {
				t.Parallel()
				dir := g.unpack(t)
				p := start(t, dir, keepAll...)
				want := "was not closed by its last owner; it was checked and is sound"
				if name != goldenName(version-1) {
					want = "the database was upgraded"
				}
				if !strings.Contains(p.said(), want) {
					t.Errorf("the start does not say %q:\n%s", want, p.said())
				}
				g.check(t, p)
				succeed(t, dir, []string{"rekey"}, "Encrypted the request headers of 1 subscriptions, too.")
			})
			t.Run("the next version upgrades it, and this version refuses it then", func(t *testing.T) {
				t.Parallel()
				dir := g.unpack(t)
				p := startVersion(t, next, dir, keepAll...)
				if !strings.Contains(p.said(), "the database was upgraded") {
					t.Errorf("the start says nothing about an upgrade:\n%s", p.said())
				}
				g.check(t, p)
				path := filepath.Join(dir, "keyhook.db")
				if waiting := count(t, path, "SELECT count(*) FROM deliveries WHERE region = 'waiting'"); waiting < 10 {
					t.Errorf("the step has changed %d rows", waiting)
				}
				saved := fmt.Sprintf("%s.before-v%d", path, version)
				code, said := finish(t, keyhook(t, dir, "serve", "--listen=127.0.0.1:0"))
				sentence := lastSentence(t, said)
				for _, part := range []string{
					fmt.Sprintf("has schema %d and this binary knows %d", version, version-1), "run the newer binary", "restore the copy that was made before the upgrade, " + saved,
				} {
					if code != 3 || !strings.Contains(sentence, part) {
						t.Errorf("exit code %d, and it does not say %q: %s", code, part, said)
					}
				}
				// A restore would add an audit event and hold the queue. The copy itself has what there was before.
				noError(t, os.RemoveAll(path+"-wal"), os.Rename(saved, path))
				p = start(t, dir, keepAll...)
				p.authorization = "Bearer " + g.Operator
				g.compare(t, p)
			})
		})
	}
}

// readGolden reads an archive.
func readGolden(t *testing.T, name, digest string) *goldenFile {
	t.Helper()
	unpacked, err := gzip.NewReader(bytes.NewReader(storagetest.Frozen(t, name, digest)))
	noError(t, err)
	g := &goldenFile{database: map[string][]byte{}}
	for files := tar.NewReader(unpacked); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return g
		}
		noError(t, err)
		text, err := io.ReadAll(files)
		noError(t, err)
		if header.Name == goldenFacts {
			noError(t, json.Unmarshal(text, g))
		} else {
			g.database[header.Name] = text
		}
	}
}

// goldenName returns the name of the file of a schema.
func goldenName(version int) string { return fmt.Sprintf("testdata/v%d.tar.gz", version) }

// goldenFacts is the name of the file in the archive that has the fields of goldenFile.
const goldenFacts = "golden.json"

// unpack writes the database into a new directory.
func (g *goldenFile) unpack(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range g.database {
		noError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return dir
}

// check checks a process that has started on the file, and stops it.
func (g *goldenFile) check(t *testing.T, p *process) {
	t.Helper()
	p.authorization = "Bearer " + g.Operator
	g.compare(t, p)
	for _, key := range g.Keys {
		var verdict struct{ Code string }
		if p.must(t, "POST", "/api/v1/auth/verify/", key.Ask, &verdict); verdict.Code != key.Code {
			t.Errorf("a key is %s, and was %s", verdict.Code, key.Code)
		}
	}
	p.must(t, "POST", "/api/v1/session/", object{"token": g.Operator}, nil)
	g.deliver(t, p)
	if code := p.end(terminate); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.said())
	}
	path := filepath.Join(p.dir, "keyhook.db")
	var sound string
	storagetest.Query(t, path, &sound, "SELECT group_concat(integrity_check) FROM pragma_integrity_check")
	if orphans := count(t, path, "SELECT count(*) FROM pragma_foreign_key_check"); sound != "ok" || orphans > 0 {
		t.Errorf("%d rows refer to none; the check of the file says %s", orphans, sound)
	}
}

// compare compares what the API says with what it said then.
func (g *goldenFile) compare(t *testing.T, p *process) {
	t.Helper()
	if d := cmp.Diff(any(g.Content), storagetest.StillThere(g.Content, content(t, p))); d != "" {
		t.Errorf("the API says something else (-then +now):\n%s", d)
	}
}

// deliver moves all subscriptions to a receiver of this test and releases the queue. What waited must arrive.
func (g *goldenFile) deliver(t *testing.T, p *process) {
	t.Helper()
	in, waiting := newInbox(t), g.waiting()
	for id := range waiting {
		sub := g.Subscriptions[id]
		p.caller.organization = sub.Organization
		change := object{"url": in.url + id, "is_active": true}
		if len(sub.Headers) > 0 {
			change["headers"] = sub.Headers // another host does not get the old ones
		}
		p.must(t, "PATCH", "/api/v1/webhooks/subscriptions/"+id+"/", change, nil)
	}
	p.caller.organization = ""
	p.must(t, "POST", "/api/v1/queue/release/", nil, nil)
	for id, events := range waiting {
		sub := g.Subscriptions[id]
		p.caller.organization = sub.Organization
		p.drained(t, id)
		arrived := in.of(id)
		var got []string
		for _, d := range arrived {
			d.check(t, sub.Secret, sub.Headers)
			if id := d.header.Get("X-Service-Event-Id"); slices.Contains(events, id) { // and no audit event about this test
				got = append(got, id)
			}
		}
		if sub.Name != "ordered" {
			slices.Sort(events)
			slices.Sort(got)
			got = slices.Compact(got) // a closed connection may repeat a request
		}
		if d := cmp.Diff(events, got); d != "" {
			t.Errorf("%s: the events that waited and those that arrived (-want +got):\n%s", sub.Name, d)
		}
	}
	p.authorization, p.caller.organization = g.Publisher, ""
	var again struct{ ID string }
	p.must(t, "POST", "/api/v1/events/", g.Repeated, &again)
	if again.ID != g.RepeatedID {
		t.Errorf("the repeated event is %s, and was %s", again.ID, g.RepeatedID)
	}
	id := p.publish(t, "order.created")
	for name := range waiting {
		if g.Subscriptions[name].Name != "healthy" {
			continue
		}
		for deadline := time.Now().Add(patience); !in.has(name, id); sleep(t.Context(), 10*time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("a new event does not arrive")
			}
		}
	}
}

// waiting returns the pending events of each subscription, in the order of their publication.
func (g *goldenFile) waiting() map[string][]string {
	found := map[string][]string{}
	newest, _ := g.Content[everyEvent].([]any)
	for _, e := range slices.Backward(newest) {
		id := e.(object)["id"].(string)
		for _, d := range g.Content["/api/v1/events/"+id+"/"].(object)["deliveries"].([]any) {
			if d := d.(object); d["state"] == "pending" {
				sub := d["subscription_id"].(string)
				found[sub] = append(found[sub], id)
			}
		}
	}
	return found
}

// inbox takes deliveries for several subscriptions, each at its own path.
type inbox struct {
	url string // ends in a slash

	mu  sync.Mutex
	got map[string][]delivered
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	in := &inbox{got: map[string][]delivered{}}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		in.mu.Lock()
		defer in.mu.Unlock()
		name := strings.TrimPrefix(r.URL.Path, "/")
		in.got[name] = append(in.got[name], delivered{r.Header, body})
	}))
	t.Cleanup(s.Close)
	in.url = s.URL + "/"
	return in
}

// of returns what has arrived for a subscription.
func (in *inbox) of(name string) []delivered {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.got[name])
}

// has reports whether an event has arrived for a subscription.
func (in *inbox) has(name, event string) bool {
	return slices.ContainsFunc(in.of(name), func(d delivered) bool { return d.header.Get("X-Service-Event-Id") == event })
}
