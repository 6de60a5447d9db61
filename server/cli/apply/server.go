package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

// server is what the server has, and the names that the file adds.
type server struct {
	permissions access.Scope // of the caller
	isKey       bool         // the caller is an API key, so it never gets a permission that the file creates
	objects     map[*kind]map[string]*object
	wanted      map[*kind]map[string]*wanted // the objects of the file, by name
	pruned      map[*object]bool             // what --prune would remove
	applied     []*object                    // what apply created, in the order of creation
}

// object is one object of the server.
type object struct {
	kind    *kind
	key     string // as in the list of applied objects: name, key or id; of a member, two ids
	name    string // as the file names it, if it can
	fields  map[string]any
	applied bool // apply created it
}

func (o *object) text(field string) string {
	text, _ := o.fields[field].(string)
	return text
}

// find returns the object that a name means: its name or key, its id or its external id; nil if there is none. Members and
// subscriptions have the names of findIn.
func (s *server) find(k *kind, name string) *object { return s.objects[k][name] }

// findIn returns the member or the subscription of an organization that the file means; nil if there is none.
func (s *server) findIn(k *kind, organization, name string) *object {
	in := s.find(organizations, organization)
	if in == nil {
		return nil
	}
	if k == members {
		user := s.find(users, name)
		if user == nil {
			return nil
		}
		name = user.key
	}
	return s.find(k, in.key+"/"+name)
}

// knows reports whether the server has an object with that name, or the file adds it.
func (s *server) knows(k *kind, name string) bool {
	return s.wanted[k][name] != nil || s.find(k, name) != nil
}

// hasWebhooks reports whether an organization will have a plan with webhooks.
func (s *server) hasWebhooks(organization string) bool {
	plan := ""
	if o := s.find(organizations, organization); o != nil {
		plan, organization = o.text("plan"), o.name // the file may name it by its id, and change its plan
	}
	if w := s.wanted[organizations][organization]; w != nil {
		plan = w.text("plan")
	}
	if w := s.wanted[plans][plan]; w != nil {
		if webhooks, given := w.complete()["webhooks"]; given {
			return webhooks == true
		}
	}
	found := s.find(plans, plan)
	return found == nil || found.fields["webhooks"] == true // an unknown plan is another problem
}

// names returns what the file may write for an object of a kind, sorted.
func (s *server) names(k *kind) []string {
	names := slices.Collect(maps.Keys(s.wanted[k]))
	for _, o := range s.objects[k] {
		names = append(names, o.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkPermissions refuses a credential that cannot do what the file may need. Without this, a narrow token would fail in the
// middle.
func checkPermissions(ctx context.Context, c client.Client, doc *document, o Options) error {
	granted, _, err := callersPermissions(ctx, c)
	if err != nil {
		return err
	}
	needed := []string{access.PlatformRead}
	if !o.DryRun {
		needed = append(needed, access.PlatformWrite)
	}
	if len(doc.entries[subscriptions]) > 0 || o.Prune {
		needed = append(needed, access.WebhooksRead)
		if !o.DryRun {
			needed = append(needed, access.WebhooksWrite, access.PlatformActAs)
		}
	}
	if missing := access.NewScope(needed...).Minus(granted); !missing.Empty() {
		return fault.Advise(fmt.Errorf("nothing was changed: the credential lacks %s", strings.Join(missing.Keys(), ", ")),
			"use an access token of an operator, or an API key with these permissions")
	}
	return nil
}

func callersPermissions(ctx context.Context, c client.Client) (has access.Scope, isKey bool, err error) {
	body, err := c.Do(ctx, "GET", "/api/v1/whoami/", nil)
	if err != nil {
		return has, false, err
	}
	var me struct {
		Permissions []string  `json:"permissions"`
		Key         *struct{} `json:"key"`
	}
	if err := json.Unmarshal(body, &me); err != nil {
		return has, false, fmt.Errorf("read the answer of the server: %w", err)
	}
	return access.NewScope(me.Permissions...), me.Key != nil, nil
}

// readServer reads what the server has of the kinds that matter for the file.
func readServer(ctx context.Context, c client.Client, doc *document, prune bool) (*server, error) {
	s := &server{objects: map[*kind]map[string]*object{}, wanted: map[*kind]map[string]*wanted{}, pruned: map[*object]bool{}}
	for _, k := range kinds {
		s.objects[k], s.wanted[k] = map[string]*object{}, map[string]*wanted{}
	}
	var err error
	if s.permissions, s.isKey, err = callersPermissions(ctx, c); err != nil {
		return nil, err
	}
	marks, err := readApplied(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		isNeeded := k != users && k != subscriptions || prune || len(doc.entries[k]) > 0 || k == users && len(doc.entries[members]) > 0
		if k == members || !isNeeded {
			continue
		}
		if err := s.readAll(ctx, c, k); err != nil {
			return nil, err
		}
	}
	if err := s.readMembers(ctx, c, doc, marks, prune); err != nil {
		return nil, err
	}
	s.mark(marks)
	return s, nil
}

// mark is what the server says about one object that apply created.
type mark struct{ Kind, Key string }

func readApplied(ctx context.Context, c client.Client) (marks []mark, err error) {
	err = list(ctx, c, "/api/v1/applied/", func(m mark) { marks = append(marks, m) })
	slices.Reverse(marks)
	return marks, err
}

// list calls each for all items of a list of the API.
func list[T any](ctx context.Context, c client.Client, path string, each func(T)) error {
	page, err := c.List(ctx, path, "", math.MaxInt)
	if err != nil {
		return err
	}
	for _, text := range page.Data {
		var item T
		if err := json.Unmarshal(text, &item); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		each(item)
	}
	return nil
}

func (s *server) readAll(ctx context.Context, c client.Client, k *kind) error {
	path := k.path
	if k == subscriptions {
		path += "?organization=all"
	}
	return list(ctx, c, path, func(fields map[string]any) {
		if fields["closed_at"] != nil || fields["erased_at"] != nil {
			return // nobody can use it again
		}
		o := &object{kind: k, fields: fields}
		switch k {
		case organizations, users:
			o.key, o.name = o.text("id"), o.text("external_id")
			s.objects[k][o.key] = o
		case subscriptions:
			s.addSubscription(o)
			return
		default:
			o.key = o.text(k.keys[0])
			o.name = o.key
		}
		o.name = cmp.Or(o.name, o.key)
		s.objects[k][o.name] = o
	})
}

// addSubscription adds a subscription below its id, and below the id of its organization with its external id.
func (s *server) addSubscription(o *object) {
	in, external := o.text("organization_id"), o.text("external_id")
	o.key = o.text("id")
	s.objects[subscriptions][o.key] = o
	if external != "" {
		s.objects[subscriptions][in+"/"+external] = o
	}
	if found := s.find(organizations, in); found != nil {
		in = found.name
	}
	o.name = in + "/" + cmp.Or(external, o.key)
}

// readMembers reads the members of the organizations for which the file has members. It also adds those that apply created.
func (s *server) readMembers(ctx context.Context, c client.Client, doc *document, marks []mark, prune bool) error {
	read := map[string]bool{}
	for _, e := range doc.entries[members] {
		name, _ := e.texts["organization"].(string)
		in := s.find(organizations, name)
		if in == nil || read[in.key] {
			continue
		}
		read[in.key] = true
		if err := list(ctx, c, organizations.path+url.PathEscape(in.key)+"/members/", func(fields map[string]any) {
			user, _ := fields["user_id"].(string)
			s.addMember(access.MemberKey(in.key, user), fields)
		}); err != nil {
			return err
		}
	}
	for _, m := range marks {
		if prune && m.Kind == access.KindMember && s.find(members, m.Key) == nil {
			s.addMember(m.Key, nil)
		}
	}
	return nil
}

func (s *server) addMember(key string, fields map[string]any) {
	o := &object{kind: members, key: key, name: key, fields: fields}
	organization, user, _ := strings.Cut(key, "/")
	in, who := s.find(organizations, organization), s.find(users, user)
	if in != nil && who != nil {
		o.name = in.name + "/" + who.name
	}
	s.objects[members][key] = o
}

// mark notes which objects apply created.
func (s *server) mark(marks []mark) {
	for _, m := range marks {
		if k := kindNamed(m.Kind); k != nil {
			if o := s.objects[k][m.Key]; o != nil {
				o.applied = true
				s.applied = append(s.applied, o)
			}
		}
	}
}
