package apply

import (
	"context"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/fault"
)

type kind struct {
	name, section string
	make          func(*item) error // creates or changes an object, or notes its problems
	remove        func(ctx context.Context, by access.Actor, key string) error
}

// kinds are in the order in which objects refer to each other.
func (r *run) kinds() []kind {
	return []kind{
		{access.KindPlan, "plans", r.makePlan, r.Store.DeletePlan},
		{access.KindPermission, "permissions", r.makePermission, r.Store.DeletePermission},
		{access.KindRole, "roles", r.makeRole, r.Store.DeleteRole},
		{access.KindEventType, "event_types", r.makeEventType, r.Store.DeleteEventType},
		{access.KindOrganization, "organizations", r.makeOrganization, r.removeOrganization},
		{access.KindUser, "users", r.makeUser, r.Store.DeleteUser},
		{access.KindMember, "members", r.makeMember, r.removeMember},
		{access.KindSubscription, "subscriptions", r.makeSubscription, r.removeSubscription},
	}
}

type run struct {
	Endpoint
	by         access.Actor
	lookup     form.Lookup
	dry, prune bool
	shown      []form.Element          // the only objects that prune may remove; nil: all
	sections   map[string][]*form.Form // by kind
	unchanged  map[*form.Form]string   // identities of the objects that need no change
	*pass
}

// pass is one reading of a document. The function of a write may run again, and begins with a new pass.
type pass struct {
	ctx      context.Context
	looks    bool              // only compares
	named    map[string]string // path by identity: kind and key of the objects of the document
	failed   map[string]bool   // kind and name of the objects of the document with problems
	applied  map[string]bool   // identity of what apply has created; empty without prune
	list     []access.Applied  // the same, the oldest first
	changes  []change
	problems []fault.Field
	same     int   // objects that need no change
	moved    int64 // pending deliveries that the changes of subscriptions may move or drop
	denied   bool  // a problem is a permission that the caller lacks
}

type item struct {
	*form.Form
	kind    string
	path    string
	name    string // as the document names it
	id      string // identity, once it is known
	isNew   bool
	applied bool // apply has created it, so it gets the usual values of the fields that the document leaves out
	skipped bool // an object that it names has a problem
	fields  []field
}

func (i *item) isSame() bool { return !i.isNew && len(i.fields) == 0 }

// identity names an object among all kinds. key is the name, the key or the id; see access.MemberKey.
func identity(kind, key string) string { return kind + " " + key }

// rows estimates how many rows the write has: at least one for each object that it reads, and some for each change.
func (r *run) rows() int {
	rows := 1
	for _, list := range r.sections {
		rows += 8 * len(list)
	}
	return min(rows-8*len(r.unchanged), maxRows)
}

// findUnchanged finds the objects that need no change, outside of the write, so that the writer spends no time on them. Problems show
// again in the write. Faults: Invalid if the changes are too many, or move too many pending deliveries.
func (r *run) findUnchanged(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	r.looks = true
	if err := r.makeAll(); err != nil {
		return err
	}
	if len(r.changes)+r.countPruned() > MaxChanges {
		return errTooManyChanges
	}
	if r.moved > maxRows {
		return fault.New(fault.Invalid, access.CodeTooManyChanges,
			"The changes of subscriptions in the document move %d pending deliveries, and one request may move %d; nothing was changed. Apply it in parts.", r.moved, maxRows)
	}
	return nil
}

var errTooManyChanges = fault.New(fault.Invalid, access.CodeTooManyChanges,
	"The document differs from the server in more than %d objects; nothing was changed. Apply it in parts.", MaxChanges)

// isDone reports whether there is nothing to change, after findUnchanged. Then nobody has to wait for a write.
func (r *run) isDone() bool { return len(r.changes)+len(r.problems)+len(r.failed)+r.countPruned() == 0 }

func (r *run) begin(ctx context.Context) error {
	r.pass = &pass{ctx: ctx, named: map[string]string{}, failed: map[string]bool{}, applied: map[string]bool{}}
	if !r.prune {
		return nil
	}
	list, err := r.Store.Applied(r.ctx, 0, math.MaxInt)
	slices.Reverse(list)
	r.list = list
	for _, a := range list {
		r.applied[identity(a.Kind, a.Key)] = true
	}
	return err
}

// write makes the changes. refusal says why the document is refused. Any other error is a failure.
func (r *run) write(ctx context.Context) (result resultBody, refusal, err error) {
	if err := r.begin(ctx); err != nil {
		return result, nil, err
	}
	for f, id := range r.unchanged {
		r.named[id] = pathOf(f)
	}
	closures, err := r.countClosures()
	if err == nil {
		err = r.makeAll()
	}
	if err == nil && r.prune && len(r.problems) == 0 {
		err = r.removeAll(closures)
	}
	switch {
	case err != nil:
		return result, nil, err
	case len(r.changes) > MaxChanges:
		return result, errTooManyChanges, nil
	case len(r.problems) > 0: // Forbidden if the caller may not grant what the document grants, as for a single object
		refused, _ := fault.As(fault.Fields(r.problems))
		if r.denied {
			refused.Kind, refused.Code = fault.Forbidden, access.CodeDenied
		}
		return result, refused, nil
	}
	return resultBody{append([]change{}, r.changes...), len(r.unchanged) + r.same}, nil, nil
}

func (r *run) makeAll() error {
	for _, k := range r.kinds() {
		for _, f := range r.sections[k.name] {
			if _, isSame := r.unchanged[f]; isSame && !r.looks {
				continue
			}
			if !r.looks && (len(r.changes) > MaxChanges || len(r.problems) > form.MaxProblems) {
				return nil // the response is the same
			}
			if err := r.makeOne(k, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func pathOf(f *form.Form) string { return strings.TrimSuffix(f.Path(""), ".") }

func (r *run) makeOne(k kind, f *form.Form) error {
	f.Reset()
	i := &item{Form: f, kind: k.name, path: pathOf(f)}
	problems := len(r.problems)
	if err := r.note(i.path, k.make(i)); err != nil {
		return err
	}
	if i.skipped || len(r.problems) > problems {
		r.failed[identity(k.name, i.name)] = true
		return nil
	}
	if i.isSame() {
		if r.looks {
			r.unchanged[f] = i.id
		} else {
			r.same++
		}
		return nil
	}
	r.changes = append(r.changes, change{map[bool]string{true: "create", false: "update"}[i.isNew], k.name, i.name, &i.path, append([]field{}, i.fields...)})
	return nil
}

// note turns a fault about an object into problems with its path, and returns any other error.
func (r *run) note(path string, err error) error {
	refused, isFault := fault.As(err)
	if !isFault || !isRefusal(refused.Kind) || refused.Code == access.CodeTooManyChanges {
		return err
	}
	r.denied = r.denied || refused.Code == access.CodeDenied
	fields := refused.Fields
	if len(fields) == 0 {
		fields = []fault.Field{{Field: path, Code: refused.Code, Message: refused.Message}}
	}
	for _, p := range fields {
		if !strings.HasPrefix(p.Field, path) { // of the store, which knows no path
			p.Field = path + "." + p.Field
		}
		if refused.Existing != "" {
			p.Message += " See " + r.nameExisting(refused.Existing) + "."
		}
		p.Field = strings.TrimSuffix(p.Field, ".")
		r.problems = append(r.problems, p)
	}
	return nil
}

// isRefusal reports whether a fault is about an object, and not about the caller or the moment.
func isRefusal(kind fault.Kind) bool {
	return kind == fault.Invalid || kind == fault.Conflict || kind == fault.Forbidden || kind == fault.NotFound
}

// nameExisting returns the path of an object of the document, or the id.
func (r *run) nameExisting(id string) string {
	for _, k := range r.kinds() {
		if path, found := r.named[identity(k.name, id)]; found {
			return path
		}
	}
	return id
}

// identify notes which object of the server an item is, and whether apply has created it.
func (r *run) identify(i *item, key string) error {
	i.id = identity(i.kind, key)
	if path, twice := r.named[i.id]; twice {
		i.Refuse("", "duplicate", "This object is in the document already, see %s; remove one of the two.", path)
		return i.Err()
	}
	r.named[i.id] = i.path
	if i.isNew {
		return nil
	}
	_, err := r.Store.AppliedObject(r.ctx, i.kind, key)
	i.applied = err == nil
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	return err
}

// reference finds the object that a field names: one of the server, or an earlier one of the document. find finds it, and key returns its
// key in the list of applied objects. An unknown name is a problem of the field. The form keeps any other error.
func reference[T any](r *run, i *item, field string, find func(context.Context, string) (T, error), key func(T) string) (found T) {
	text := i.Line(field, access.MaxExternalID)
	if text == nil {
		return found
	}
	if r.failed[identity(field, *text)] && !r.looks { // a comparison needs the object as it is on the server
		i.skipped = true
		return found
	}
	found, err := find(r.ctx, *text)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		i.Refuse(field, "unknown_"+field, "There is no %s %q, in the document or on the server; add it to %ss, or correct the name.", field, form.Printable(*text, form.MaxName), field)
	case err != nil:
		i.Fail(err)
	case r.isPruned(identity(field, key(found))):
		i.Refuse(field, "pruned", "prune would remove the %s %q, which is not in the document; put it back, or name another one.", field, form.Printable(*text, form.MaxName))
	}
	return found
}

// compare returns the value that a field gets; nil if the field stays as it is. usual is the value of the field where the document
// leaves it out, if apply has created the object.
func compare[T any](i *item, name string, given *T, before, usual T) *T {
	if given == nil && i.applied {
		given = &usual
	}
	if given == nil || !i.isNew && reflect.DeepEqual(*given, before) {
		return nil
	}
	f := field{name, before, *given}
	if i.isNew {
		f.From = nil
	}
	i.fields = append(i.fields, f)
	return given
}
