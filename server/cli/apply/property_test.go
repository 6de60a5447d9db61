package apply_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keyhook/keyhook/server/cli/apply"
)

// drawFile draws a file. Its objects have few names, so two files share many. The organizations in with are in it. full are those
// that must stay: an organization with subscriptions is closed, and then its plan stays in use.
func drawFile(t *rapid.T, label string, with []string) (file string, full []string) {
	d := drawing{t, label}
	lists := map[string][]string{}
	add := func(section, format string, args ...any) {
		lists[section] = append(lists[section], "{"+fmt.Sprintf(format, args...)+"}")
	}
	planNames := []string{"growth"}
	for _, name := range d.some("plans", "p1", "p2") {
		planNames = append(planNames, name)
		add("plans", "name: %s, webhooks: true, api_rate_limit_per_minute: %s%s", name, d.pick("1", "null"), d.maybe(", max_api_keys: 4"))
	}
	permissionKeys := []string{"events:read"}
	for _, key := range d.some("permissions", "orders:read", "orders:write") {
		permissionKeys = append(permissionKeys, key)
		add("permissions", "key: %q%s", key, d.maybe(", description: Text"))
	}
	roleNames := []string{"owner"}
	for _, name := range d.some("roles", "r1", "r2") {
		roleNames = append(roleNames, name)
		add("roles", "name: %s, permissions: [%q]", name, d.pick(permissionKeys...))
	}
	for _, o := range []string{"o1", "o2", "hand"} {
		if !slices.Contains(with, o) && d.maybe("x") == "" {
			continue
		}
		plan := d.pick(planNames...)
		if o != "o1" { // it stays or is closed, so it must not keep a plan from being pruned
			plan = "growth"
		}
		add("organizations", "external_id: %s, name: %s, plan: %s", o, d.pick("A", "B"), plan)
		for _, s := range d.some("subscriptions of "+o, "s1", "s2", "s3") {
			if o == "o1" {
				full = append(full, o)
			}
			add("subscriptions", `organization: %s, external_id: %s, url: "https://%s.example/"%s%s`, o, s, d.pick("a", "b"),
				d.maybe(", event_types: [order.*, a.b]"), d.maybe(", rate_limit_per_second: 5")+d.maybe(", ordered: true"))
		}
		for _, u := range d.some("members of "+o, "u1", "u2") {
			add("members", "organization: %s, user: %s, role: %s", o, u, d.pick(roleNames...))
		}
	}
	for _, u := range []string{"u1", "u2", "hand"} {
		add("users", "external_id: %s, name: %s, email: %s@example.com", u, d.pick("A", "B"), u)
	}
	var b strings.Builder
	for _, section := range slices.Sorted(maps.Keys(lists)) {
		b.WriteString(section + ":\n")
		for _, item := range lists[section] {
			b.WriteString("  - " + item + "\n")
		}
	}
	return b.String(), full
}

type drawing struct {
	*rapid.T
	label string
}

func (d drawing) pick(from ...string) string { return rapid.SampledFrom(from).Draw(d.T, d.label) }
func (d drawing) maybe(text string) string   { return d.pick("", text) }

func (d drawing) some(of string, names ...string) (some []string) {
	for _, name := range names {
		if rapid.Bool().Draw(d.T, d.label+" "+of+" "+name) {
			some = append(some, name)
		}
	}
	return some
}

// byHand creates objects by hand. Some have names that files use.
func (f *target) byHand(t *testing.T) {
	f.do(t, "POST", "organizations/", `{"external_id":"hand","name":"By hand","plan":"growth"}`)
	f.do(t, "POST", "organizations/", `{"external_id":"other","name":"Other","plan":"growth"}`)
	f.do(t, "POST", "users/", `{"external_id":"hand","name":"By hand","email":"hand@example.com"}`)
	f.do(t, "PUT", "organizations/hand/members/hand/", `{"role":"member"}`)
	f.do(t, "POST", "webhooks/subscriptions/", `{"external_id":"s1","url":"https://hand.example/","description":"By hand"}`, "hand")
	f.do(t, "POST", "webhooks/subscriptions/", `{"external_id":"s1","url":"https://other.example/"}`, "other")
	f.do(t, "POST", "plans/", `{"name":"p3","api_rate_limit_per_minute":3}`)
}

// volatile are the fields that differ between two servers with the same contents.
var volatile = []string{"id", "organization_id", "user_id", "created_at", "updated_at", "disabled_at", "closed_at", "roles", "conflicting_id", "newest_memberships"}

// contents returns all objects of a server by name, and which of them apply created.
func (f *target) contents(t *testing.T) (objects map[string]string, applied map[string]bool) {
	t.Helper()
	objects, applied = map[string]string{}, map[string]bool{}
	names := map[string]string{} // by kind and key, as in the list of applied objects
	add := func(kind, key, name string, fields map[string]any) {
		for _, field := range volatile {
			delete(fields, field)
		}
		text, _ := json.Marshal(fields)
		names[kind+" "+key], objects[kind+" "+name] = kind+" "+name, string(text)
	}
	text := func(fields map[string]any, name string) string { s, _ := fields[name].(string); return s }
	all := func(path string) (list []map[string]any) {
		for _, item := range f.do(t, "GET", path, "")["data"].([]any) {
			list = append(list, item.(map[string]any))
		}
		return list
	}
	external := map[string]string{}
	for _, u := range all("users/?limit=200") {
		external[text(u, "id")] = text(u, "external_id")
		add("user", text(u, "id"), text(u, "external_id"), u)
	}
	for _, o := range all("organizations/?limit=200") {
		id, name := text(o, "id"), text(o, "external_id")
		if name == "" {
			continue // Default, and closed ones
		}
		external[id] = name
		for _, m := range all("organizations/" + id + "/members/") {
			user := text(m, "user_id")
			add("member", id+"/"+user, name+"/"+external[user], m)
		}
		add("organization", id, name, o)
	}
	for _, s := range all("webhooks/subscriptions/?organization=all&limit=200") {
		add("subscription", text(s, "id"), external[text(s, "organization_id")]+"/"+text(s, "external_id"), s)
	}
	for kind, field := range map[string]string{"plan": "name", "role": "name", "permission": "key"} {
		for _, o := range all(kind + "s/?limit=200") {
			add(kind, text(o, field), text(o, field), o)
		}
	}
	for _, m := range all("applied/?limit=200") {
		if name := names[text(m, "kind")+" "+text(m, "key")]; name != "" {
			applied[name] = true
		}
	}
	return objects, applied
}

// TestPruneLeavesWhatAFreshServerHas applies two files, with a broken connection in between, and compares with a server that knows
// only the second file.
func TestPruneLeavesWhatAFreshServerHas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		first, full := drawFile(r, "first", nil)
		second, _ := drawFile(r, "second", full)
		used, fresh := serve(t), serve(t)
		defer used.stop()
		defer fresh.stop()
		used.byHand(t)
		fresh.byHand(t)
		byHand, _ := fresh.contents(t)

		must := func(f *target, file string, o apply.Options) string {
			printed, err := f.apply(t, file, o)
			if err != nil {
				r.Fatalf("apply: %v\n%s\nthe files:\n%s\n%s", err, printed, first, second)
			}
			return printed
		}
		used.failAt = used.writes.Load() + int64(rapid.IntRange(1, 30).Draw(r, "failing write"))
		used.isAfter = rapid.Bool().Draw(r, "fails after the work")
		_, _ = used.apply(t, first, apply.Options{}) // may break
		if rapid.Bool().Draw(r, "the first file is finished") {
			must(used, first, apply.Options{})
		}
		if _, err := used.apply(t, second, apply.Options{Prune: true}); err != nil {
			must(used, second, apply.Options{Prune: true})
		}
		must(fresh, second, apply.Options{Prune: true})

		got, gotApplied := used.contents(t)
		want, wantApplied := fresh.contents(t)
		if d := cmp.Diff(wantApplied, gotApplied); d != "" {
			r.Fatalf("created by apply (-fresh +used):\n%s\nthe files:\n%s\n%s", d, first, second)
		}
		for name := range wantApplied {
			if got[name] != want[name] {
				r.Fatalf("%s: %s, on a fresh server %s\nthe files:\n%s\n%s", name, got[name], want[name], first, second)
			}
		}
		for name := range byHand {
			if _, found := got[name]; !found {
				r.Fatalf("%s was made by hand, and is gone\nthe files:\n%s\n%s", name, first, second)
			}
		}
		for _, name := range []string{"organization other", "subscription other/s1", "plan p3", "plan free"} {
			if got[name] != byHand[name] {
				r.Fatalf("%s was made by hand and is in no file, and changed from %s to %s", name, byHand[name], got[name])
			}
		}
		if printed := must(used, second, apply.Options{Prune: true}); strings.Count(printed, "\n") != 1 || !strings.HasPrefix(printed, "= ") {
			r.Fatalf("the same file again:\n%s", printed)
		}
	})
}

// TestMain draws fewer cases than usual: each one starts two servers. -rapid.checks changes that.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
	m.Run()
}
