package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// makeGolden writes the golden file of the schema of today, unless it is there.
func makeGolden(t *testing.T) {
	t.Helper()
	name := goldenName(count(t, emptyFile(t), "PRAGMA user_version"))
	if _, err := os.Stat(name); err == nil {
		return
	}
	w := &world{t: t, dir: t.TempDir(), golden: &goldenFile{Subscriptions: map[string]keptSubscription{}, database: map[string][]byte{}}}
	w.found()
	w.work()
	for _, file := range []string{"keyhook.db", "keyhook.db-wal", "keyhook.db.key"} {
		text, err := os.ReadFile(filepath.Join(w.dir, file))
		noError(t, err)
		w.golden.database[file] = text
	}
	p := start(t, w.golden.unpack(t), keepAll...)
	p.authorization = "Bearer " + w.golden.Operator
	w.golden.Content = content(t, p)
	w.complete()
	w.pack(name)
}

// emptyFile returns a new database.
func emptyFile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	start(t, dir).end(terminate)
	return filepath.Join(dir, "keyhook.db")
}

// world makes the golden file.
type world struct {
	t      *testing.T
	dir    string
	golden *goldenFile
	p      *process
	acme   caller // acts in the organization with most of it

	up, down, hangs *receiver
}

// found makes what customers and operators make, and stops the process, so that the write-ahead log begins with the load.
func (w *world) found() {
	w.up, w.down, w.hangs = receive(w.t, http.StatusOK, 0), receive(w.t, http.StatusServiceUnavailable, 0), receive(w.t, http.StatusOK, time.Hour)
	w.p = start(w.t, w.dir, outage...)
	w.acme = w.p.caller
	w.directory()
	w.keys()
	w.subscriptions()
	w.failures()
	w.subscribe(w.acme, "hanging", w.hangs, object{"event_types": []string{"order.*"}})
	w.p.end(terminate)
}

// make makes a thing and returns it.
func (w *world) make(as caller, method, path string, body object) (made object) {
	w.t.Helper()
	var given any // nil is no body
	if body != nil {
		given = body
	}
	as.must(w.t, method, "/api/v1/"+path, given, &made)
	return made
}

// directory makes plans, roles, organizations and users.
func (w *world) directory() {
	p := w.p.caller
	w.make(p, "POST", "plans/", object{
		"name": "metered", "api_keys": true, "webhooks": true, "api_rate_limit_per_minute": 6000,
		"max_subscriptions": 40, "max_api_keys": 30, "max_stored_bytes_per_day": 50_000_000,
	})
	w.make(p, "POST", "permissions/", object{"key": "orders:read", "description": "Read orders"})
	w.make(p, "POST", "permissions/", object{"key": "refunds:write", "description": "Pay back", "internal": true})
	w.make(p, "POST", "roles/", object{"name": "clerk", "permissions": []string{"events:read", "orders:read"}})
	w.make(p, "PUT", "event-types/order.paid/", object{"description": "An order was paid", "group": "Orders", "example": object{"number": 1}})
	w.make(p, "POST", "apply/", object{"document": object{
		"event_types":   []object{{"type": "order.created", "description": "An order was made"}},
		"organizations": []object{{"external_id": "initech", "name": "Initech", "plan": "growth"}},
	}})
	ids := map[string]string{}
	for _, name := range []string{"acme", "globex", "gone"} {
		made := w.make(p, "PUT", "organizations/"+name+"/", object{"name": strings.ToUpper(name[:1]) + name[1:], "plan": "metered"})
		ids[name] = made["id"].(string)
		for _, role := range []string{"owner", "clerk", "member"} {
			user := name + "-" + role
			ids[user] = w.make(p, "PUT", "users/"+user+"/", object{"name": "Zoë " + user, "email": user + "@example.com"})["id"].(string)
			w.make(p, "PUT", "organizations/"+name+"/members/"+user+"/", object{"role": role})
			w.make(p, "POST", "users/"+user+"/access-tokens/", object{"organization_id": name, "name": "of " + user})
		}
	}
	w.make(p, "PATCH", "users/globex-member/", object{"is_active": false})
	w.make(p, "POST", "organizations/globex/portal-links/", object{"role": "customer", "return_url": "https://shop.example/"})
	for _, end := range []string{"organizations/" + ids["gone"] + "/close/", "users/" + ids["gone-member"] + "/erase/"} {
		for range 100 {
			if w.make(p, "POST", end, nil)["complete"] == true {
				break
			}
			sleep(w.t.Context(), 50*time.Millisecond)
		}
	}
	var self struct {
		User         struct{ ID string }
		Organization struct{ ID string }
	}
	p.must(w.t, "GET", "/api/v1/whoami/", nil, &self)
	made := w.make(p, "POST", "users/"+self.User.ID+"/access-tokens/", object{"organization_id": self.Organization.ID, "name": "golden"})
	w.golden.Operator = made["token"].(string)
	w.acme.organization = "acme"
}

// keys makes keys in every state, and uses some.
func (w *world) keys() {
	key := func(code string, body, ask object) (id, key string) {
		body["scope"] = "events:read events:write orders:read"
		made := w.make(w.acme, "POST", "api-keys/", body)
		if ask["key"] = made["key"]; code != "" {
			w.golden.Keys = append(w.golden.Keys, keptKey{ask, code})
		}
		return made["id"].(string), made["key"].(string)
	}
	soon := time.Now().Add(time.Second)
	key("valid", object{"name": "plain"}, object{"permission": "events:read"})
	key("permission_denied", object{"name": "another plain"}, object{"permission": "webhooks:read"})
	key("valid", object{"name": "metadata", "external_id": "till-7", "metadata": object{"till": 7}, "expires_at": "2200-01-01T00:00:00Z"}, object{})
	key("valid", object{"name": "networks", "allowed_networks": []string{"192.0.2.0/24"}}, object{"client_ip": "192.0.2.7"})
	key("client_address_not_allowed", object{"name": "networks", "allowed_networks": []string{"192.0.2.0/24"}}, object{"client_ip": "198.51.100.7"})
	key("key_expired", object{"name": "expired", "expires_at": soon.UTC().Format("2006-01-02T15:04:05.000Z")}, object{})
	id, _ := key("key_revoked", object{"name": "revoked"}, object{})
	w.remove("api-keys/" + id + "/")
	id, _ = key("key_revoked", object{"name": "rotated"}, object{})
	made := w.make(w.acme, "POST", "api-keys/"+id+"/rotate/", object{"grace_seconds": 0})
	w.golden.Keys = append(w.golden.Keys, keptKey{object{"key": made["key"]}, "valid"})
	_, secret := key("", object{"name": "publisher"}, object{})
	w.golden.Publisher = "ApiKey " + secret
	publisher := w.acme
	publisher.authorization, publisher.organization = w.golden.Publisher, ""
	w.golden.Repeated = event("order.created", object{"number": 1001})
	w.golden.Repeated["idempotency_key"] = "order-1001"
	w.golden.RepeatedID = w.make(publisher, "POST", "events/", w.golden.Repeated)["id"].(string)
	for range 3 {
		w.make(publisher, "GET", "events/", nil)
		if _, err := publisher.call(w.t.Context(), "GET", "/api/v1/webhooks/subscriptions/", nil); err != nil { // forbidden
			w.t.Fatal(err)
		}
	}
	sleep(w.t.Context(), time.Until(soon))
}

// remove removes a thing.
func (w *world) remove(path string) {
	w.t.Helper()
	w.acme.must(w.t, "DELETE", "/api/v1/"+path, nil, nil)
}

// subscribe makes a subscription and keeps its secret.
func (w *world) subscribe(as caller, name string, to *receiver, change object) string {
	body := object{"url": nil, "description": name}
	if to != nil {
		body["url"] = to.url + name
	}
	maps.Copy(body, change)
	made := w.make(as, "POST", "webhooks/subscriptions/", body)
	kept := keptSubscription{Name: name, Secret: made["secret"].(string), Organization: made["organization_id"].(string), Headers: map[string]string{}}
	if headers, given := change["headers"].(object); given {
		for header, value := range headers {
			kept.Headers[header] = value.(string)
		}
	}
	w.golden.Subscriptions[made["id"].(string)] = kept
	return made["id"].(string)
}

// subscriptions makes subscriptions of every kind.
func (w *world) subscriptions() {
	orders := []string{"order.*"}
	w.subscribe(w.acme, "healthy", w.up, object{"audit_events": true})
	w.subscribe(w.acme, "ordered", w.up, object{"event_types": orders, "ordered": true, "external_id": "warehouse"})
	w.subscribe(w.acme, "filtered", w.up, object{
		"event_types": orders, "filter": []object{{"path": "n", "op": "gte", "value": 10}}, "rate_limit_per_second": 1000,
	})
	w.subscribe(w.acme, "feed", nil, object{"event_types": []string{"user.created"}})
	w.subscribe(w.acme, "headers", w.up, object{
		"event_types": orders, "headers": object{"Authorization": "Bearer golden", "X-Tenant": "seven"},
		"secret": "whsec_Z29sZGVuLXNlY3JldC1vZi1hLXJlY2VpdmVyLi4=",
	})
	rotated := w.subscribe(w.acme, "rotated", w.up, object{"event_types": []string{"user.created"}})
	again := w.make(w.acme, "POST", "webhooks/subscriptions/"+rotated+"/rotate-secret/", object{"overlap_seconds": 1})
	kept := w.golden.Subscriptions[rotated]
	kept.Secret = again["secret"].(string)
	w.golden.Subscriptions[rotated] = kept
	paused := w.subscribe(w.acme, "paused", w.up, object{"event_types": orders})
	w.make(w.acme, "PATCH", "webhooks/subscriptions/"+paused+"/", object{"is_active": false})
	removed := w.subscribe(w.acme, "removed", w.up, object{})
	w.remove("webhooks/subscriptions/" + removed + "/")
	delete(w.golden.Subscriptions, removed)
	other := w.p.caller
	other.organization = "globex"
	w.subscribe(other, "elsewhere", w.up, object{})
}

// failures makes one failing and one disabled subscription. Some of their attempts are the last of a delivery.
func (w *world) failures() {
	failing := w.subscribe(w.acme, "failing", w.down, object{"event_types": []string{"user.created"}})
	w.acme.publish(w.t, "user.created")
	w.acme.until(w.t, failing, "status", "failing")
	w.acme.until(w.t, failing, "pending_deliveries", 0)
	disabled := w.subscribe(w.acme, "disabled", w.down, object{"event_types": []string{"order.paid"}})
	for range 6 {
		w.acme.publish(w.t, "order.paid")
	}
	w.acme.until(w.t, disabled, "status", "disabled")
}

// work publishes from several connections, holds the queue meanwhile, and kills the process.
func (w *world) work() {
	w.p = start(w.t, w.dir) // with the usual delays
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	var mu sync.Mutex
	accepted, some, many := 0, make(chan struct{}), make(chan struct{})
	var publishers sync.WaitGroup
	for i, organization := range []string{"acme", "acme", "acme", "globex"} {
		c := w.p.caller
		c.organization = organization
		publishers.Go(func() {
			repeat(ctx, 1, func(ctx context.Context) {
				mu.Lock()
				n := accepted
				mu.Unlock()
				e := event([]string{"order.created", "order.paid", "order.shipped", "user.created"}[(n+i)%4], object{"n": n, "text": "Zoë ☕ <&>"})
				if c.try(context.WithoutCancel(ctx), "POST", "/api/v1/events/", e, nil) != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				switch accepted++; accepted {
				case 25:
					close(some)
				case 45:
					close(many)
				}
			})
		})
	}
	await(w.t, some)
	w.make(w.p.caller, "POST", "queue/hold/", object{"reason": "to look first"})
	await(w.t, many)
	w.p.end(syscall.SIGKILL)
	cancel()
	publishers.Wait()
}

// complete checks that the file has a bit of everything, and leaves out what depends on the time of reading.
func (w *world) complete() {
	text, err := json.Marshal(w.golden.Content)
	noError(w.t, err)
	for _, part := range []string{
		`"state":"delivered"`, `"state":"pending"`, `"state":"exhausted"`, `"outcome":"succeeded"`, `"outcome":"failed"`, `"outcome":"interrupted"`,
		`"status":"healthy"`, `"status":"failing"`, `"status":"disabled"`, `"status":"active"`, `"status":"revoked"`, `"status":"expired"`,
		`"is_active":false`, `"ordered":true`, `"held":true`, `"forbidden":3`, `"kind":"service"`,
	} {
		if !bytes.Contains(text, []byte(part)) {
			w.t.Fatalf("the content has no %s; run it again", part)
		}
	}
	for path, of := range w.golden.Content {
		forget(of, "next_attempt_at", "oldest_due", "oldest_due_at", "hint")
		if strings.HasSuffix(path, "/feed/") {
			forget(of, "headers", "cursor") // signatures of now
		}
		if strings.Contains(path, "/access-tokens/") {
			forget(of, "last_used_at")
		}
		if strings.Contains(path, "permissions/") {
			forget(of, "roles") // a version may have new ones
		}
	}
}

// pack writes the archive.
func (w *world) pack(name string) {
	facts, err := json.Marshal(w.golden)
	noError(w.t, err)
	w.golden.database[goldenFacts] = facts
	var packed bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	noError(w.t, err)
	files := tar.NewWriter(zipped)
	for _, file := range []string{"keyhook.db", "keyhook.db-wal", "keyhook.db.key", goldenFacts} {
		text := w.golden.database[file]
		noError(w.t, files.WriteHeader(&tar.Header{Name: file, Mode: 0o600, Size: int64(len(text)), Format: tar.FormatPAX}))
		_, err := files.Write(text)
		noError(w.t, err)
		w.t.Logf("%s has %d bytes", file, len(text))
	}
	noError(w.t, files.Close(), zipped.Close(), os.WriteFile(name, packed.Bytes(), 0o644))
	w.t.Logf("%s has %d bytes", name, packed.Len())
}
