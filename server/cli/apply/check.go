package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/dispatch/egress"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/form"
	"github.com/keyhook/keyhook/storage/fault"
)

// wanted is one object of the file, after all checks.
type wanted struct {
	*entry
	name    string         // "growth", "customer-7/orders"
	values  map[string]any // the fields that the file has
	present *object        // the object of the server; nil if there is none
	headers map[string]any
	secret  string
}

func (w *wanted) text(field string) string {
	text, _ := w.values[field].(string)
	return text
}

// check checks all objects of the file, by themselves, with each other and with the server. Problems go to the document.
func (d *document) check(s *server, directory string, o Options) (list []*wanted) {
	for _, k := range kinds {
		for _, e := range d.entries[k] {
			list = append(list, d.read(e))
		}
	}
	d.name(list, s)
	d.checkEmails(list, s)
	if o.Prune {
		s.findPruned(list)
	}
	for _, w := range list {
		d.checkReferences(w, s)
		if !o.DryRun { // a dry run works with a credential that can only read
			d.checkGrants(w, s)
		}
		d.checkWebhooks(w, s)
		d.readFiles(w, directory)
	}
	return list
}

// read reads the fields of an object as the server would.
func (d *document) read(e *entry) *wanted {
	w := &wanted{entry: e, values: map[string]any{}}
	known := map[string]any{}
	for name, value := range e.texts {
		if value != nil {
			known[name] = value
		}
	}
	text, err := json.Marshal(known)
	if err != nil {
		d.wrong(e.line, "%v", err)
		return w
	}
	f, err := form.Parse(text)
	if err != nil {
		d.wrong(e.line, "%s", messageOf(err))
		return w
	}
	for _, name := range append(slices.Clone(e.kind.keys), e.kind.required...) {
		if _, given := e.texts[name]; !given {
			d.wrong(e.line, "%s needs the field %s", withArticle(e.kind.name), name)
		}
	}
	for _, field := range e.kind.fields {
		if value, ok := field.read(f, field.name); ok {
			w.values[field.name] = normal(value, field.isSet)
		}
	}
	if refusal, isFault := fault.As(f.Err()); isFault {
		for _, p := range refusal.Fields {
			line := e.lines[p.Field]
			if line == 0 {
				line = e.line
			}
			d.wrong(line, "%s: %s", p.Field, p.Message)
		}
	}
	return w
}

// normal returns a value as json.Unmarshal does, so that values of the file and of the server can be compared.
func normal(value any, isSet bool) any {
	text, err := json.Marshal(value)
	if err != nil {
		return value
	}
	var result any
	if err := json.Unmarshal(text, &result); err != nil {
		return value
	}
	if list, isList := result.([]any); isList && isSet {
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return result
}

// name sets the names of the objects, and refuses those that are there twice.
func (d *document) name(list []*wanted, s *server) {
	first := map[string]int{}
	for _, w := range list {
		parts := []string{}
		for _, key := range w.kind.keys {
			parts = append(parts, w.text(key))
		}
		w.name = strings.Join(parts, "/")
		if slices.Contains(parts, "") {
			continue // a problem already
		}
		id := w.kind.name + " " + w.name
		if w.kind == members || w.kind == subscriptions {
			w.present = s.findIn(w.kind, parts[0], parts[1])
			// Both parts may have a slash, so the name of two objects can be the same.
			id = fmt.Sprintf("%s %q %q", w.kind.name, canonical(s, organizations, parts[0]), canonical(s, users, parts[1]))
		} else {
			w.present = s.find(w.kind, w.name)
			s.wanted[w.kind][w.name] = w
		}
		if line, again := first[id]; again {
			d.wrong(w.line, "%s %s is in line %d already; remove one of the two", w.kind.name, output.Quote(w.name), line)
			continue
		}
		first[id] = w.line
		d.checkFixed(w)
		if w.present != nil && w.present.fields["built_in"] == true {
			d.wrong(w.line, "%s %s is built in and cannot be changed; remove it from the file", w.kind.name, output.Quote(w.name))
		}
	}
}

// checkFixed refuses another value of a field that never changes.
func (d *document) checkFixed(w *wanted) {
	for _, f := range w.kind.fields {
		value, given := w.values[f.name]
		if !f.isFixed || !given || w.present == nil || value == w.present.fields[f.name] {
			continue
		}
		d.wrong(w.lines[f.name], "%s: this never changes after the creation, and it is %v on the server; delete the %s first, or remove the line",
			f.name, w.present.fields[f.name], w.kind.name)
	}
}

// checkEmails refuses an e-mail address that another user has at that moment: the server would, in the middle of the work.
func (d *document) checkEmails(list []*wanted, s *server) {
	holders := map[string]*object{}
	for _, o := range s.objects[users] {
		holders[foldEmail(o.text("email"))] = o
	}
	first, changed := map[string]int{}, map[*object]bool{}
	for _, w := range list {
		email := foldEmail(w.text("email"))
		if w.kind != users || email == "" {
			continue
		}
		holder := holders[email]
		if line, again := first[email]; again {
			d.wrong(w.lines["email"], "email: the user in line %d has this address already; each user needs one of its own", line)
		} else if holder != nil && holder != w.present && !changed[holder] {
			d.wrong(w.lines["email"], "email: the user %s on the server has this address; use that external_id, or run: keyhook users update %s --external-id %s",
				output.Quote(holder.name), holder.key, output.Quote(w.name))
		}
		first[email], changed[w.present] = w.line, true
	}
}

// foldEmail returns the same text for the addresses that the server takes for one: the case of ASCII letters means nothing.
func foldEmail(email string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, email)
}

// canonical returns the same text for all names of an object.
func canonical(s *server, k *kind, name string) string {
	if o := s.find(k, name); o != nil {
		return o.key
	}
	return name
}

// findPruned finds what apply created and the file no longer has.
func (s *server) findPruned(list []*wanted) {
	kept := map[*object]bool{}
	for _, w := range list {
		kept[w.present] = true
	}
	for _, o := range s.applied {
		s.pruned[o] = !kept[o]
	}
}

// checkReferences checks that the objects exist that an object names.
func (d *document) checkReferences(w *wanted, s *server) {
	for field, k := range map[string]*kind{"plan": plans, "role": roles, "organization": organizations, "user": users} {
		name := w.text(field)
		if name == "" || w.kind.field(field) == nil {
			continue
		}
		switch found := s.find(k, name); {
		case !s.knows(k, name):
			d.wrong(w.lines[field], "%s: there is no %s %s, in the file or on the server; %s", field, k.name, output.Quote(name), s.suggest(k))
		case found != nil && s.pruned[found]:
			d.wrong(w.lines[field], "%s: --prune would remove the %s %s, which is no longer in the file; put it back, or name another one", field, k.name, output.Quote(name))
		}
	}
	for _, key := range asList(w.values["permissions"]) {
		if !s.knows(permissions, key) {
			d.wrong(w.lines["permissions"], "permissions: there is no permission %s, in the file or on the server; %s", output.Quote(key), s.suggest(permissions))
		}
		if found := s.find(permissions, key); found != nil && s.pruned[found] {
			d.wrong(w.lines["permissions"], "permissions: --prune would remove %s, which is no longer in the file; put it back, or remove it here", key)
		}
	}
}

// checkWebhooks refuses a new subscription that the plan would not allow.
func (d *document) checkWebhooks(w *wanted, s *server) {
	if in := w.text("organization"); w.kind == subscriptions && w.present == nil && in != "" && !s.hasWebhooks(in) {
		d.wrong(w.line, "subscription %s: the plan of the organization has no webhooks; set webhooks: true in the plan, or choose another plan", output.Quote(w.name))
	}
}

// maxSuggested is how many names an error lists.
const maxSuggested = 12

func (s *server) suggest(k *kind) string {
	names := s.names(k)
	if k == organizations || k == users || len(names) > maxSuggested {
		return "add it to " + k.section + ", or correct the name"
	}
	return fmt.Sprintf("add it to %s, or choose one of %s", k.section, strings.Join(names, ", "))
}

// checkGrants refuses roles and members with permissions that the caller lacks: the server would, in the middle of the work.
func (d *document) checkGrants(w *wanted, s *server) {
	var granted []string
	switch w.kind {
	case roles:
		granted = asList(w.values["permissions"])
	case members:
		if role := s.find(roles, w.text("role")); role != nil && (w.present == nil || w.present.text("role") != role.name) {
			granted = asList(role.fields["permissions"])
		}
	}
	var missing []string
	for _, key := range granted {
		isNew := s.find(permissions, key) == nil // an operator gets a new permission
		if s.knows(permissions, key) && (!isNew || s.isKey) && !s.permissions.Has(key) {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		d.wrong(w.line, "%s %s: you can grant only permissions that you have, and your credential lacks %s", w.kind.name, output.Quote(w.name), strings.Join(missing, ", "))
	}
}

func asList(value any) (list []string) {
	items, _ := value.([]any)
	for _, item := range items {
		list = append(list, fmt.Sprint(item))
	}
	return list
}

// readFiles reads the files with the secret and the headers of a subscription. The secret matters only for a new one.
func (d *document) readFiles(w *wanted, directory string) {
	if name := w.text("headers_file"); name != "" {
		headers, err := readHeaders(directory, name)
		if err != nil {
			d.wrong(w.lines["headers_file"], "headers_file: %v", err)
		}
		w.headers = headers
	}
	if name := w.text("secret_file"); name != "" && w.present == nil {
		secret, err := readSecret(directory, name)
		if err != nil {
			d.wrong(w.lines["secret_file"], "secret_file: %v", err)
		}
		w.secret = secret
	}
}

// readHeaders reads a file of headers. It has the form that --headers-file of the other commands has, but each name needs a value.
func readHeaders(directory, name string) (map[string]any, error) {
	text, err := readIn(directory, name)
	if err != nil {
		return nil, err
	}
	headers, err := output.ParseHeaders(text)
	for name, value := range headers {
		if value == nil {
			return nil, fmt.Errorf("the header %s has no value in the file; write \"%s: value\"", name, name)
		}
	}
	return headers, err
}

func readSecret(directory, name string) (string, error) {
	text, err := readIn(directory, name)
	if err != nil {
		return "", err
	}
	return output.ParseSecret(text)
}

// readIn reads a file. Its name is relative to a directory, so - is a name like any other.
func readIn(directory, name string) (string, error) {
	if !filepath.IsAbs(name) {
		name = directory + string(filepath.Separator) + name
	}
	return output.ReadFile(nil, name, output.MaxFlagFile)
}

// messageOf returns the public text of an error of a reader.
func messageOf(err error) string {
	var wrong *egress.URLError
	if errors.As(err, &wrong) {
		return wrong.Message
	}
	if refusal, isFault := fault.As(err); isFault {
		return refusal.Message
	}
	return err.Error()
}
