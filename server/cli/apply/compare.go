package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
)

// The actions of a change, as they are printed.
const (
	create = "+"
	update = "~"
	remove = "-"
)

// change is one request that apply makes.
type change struct {
	action string
	kind   *kind
	name   string
	wanted *wanted        // of the file; nil for a removal
	object *object        // of the server; nil for a creation
	fields map[string]any // that are sent, without the names of files
	shown  []string       // what is printed behind the name
}

// plan is everything that apply does, in order.
type plan struct {
	changes   []change
	unchanged int
}

// compare finds the difference between the file and the server.
func compare(list []*wanted, s *server, prune bool) (p plan) {
	for _, w := range list { // in the order of kinds
		c := change{action: create, kind: w.kind, name: w.name, wanted: w, object: w.present, fields: map[string]any{}}
		if w.present != nil {
			c.action = update
		}
		full := w.complete()
		for _, f := range w.kind.fields {
			c.compareField(f, full)
		}
		if w.present != nil && len(c.shown) == 0 {
			p.unchanged++
			continue
		}
		p.changes = append(p.changes, c)
	}
	if !prune {
		return p
	}
	for _, k := range slices.Backward(kinds) {
		for _, o := range s.applied {
			if o.kind == k && s.pruned[o] {
				p.changes = append(p.changes, change{action: remove, kind: k, name: o.name, object: o})
			}
		}
	}
	return p
}

// preview adds to each organization that would be removed what ends with it, also if apply has not created it. A credential that can
// only read does not learn it.
func (p plan) preview(ctx context.Context, c client.Client) error {
	for i := range p.changes {
		at := &p.changes[i]
		if at.kind != organizations || at.action != remove {
			continue
		}
		got, err := c.Send(ctx, "POST", organizations.path+at.object.key+"/close/", []byte(`{"dry_run":true}`))
		if err != nil {
			return err
		}
		var ends map[string]any
		if !got.OK() || json.Unmarshal(got.Body, &ends) != nil {
			continue
		}
		for _, name := range []string{"api_keys", "access_tokens", "members", "subscriptions", "pending_deliveries"} {
			if n, _ := ends[name].(float64); n > 0 {
				at.shown = append(at.shown, fmt.Sprintf("%s %.0f", name, n))
			}
		}
	}
	return nil
}

// complete returns the fields that the object shall have. An object that apply created, or creates, has no others: a field that the
// file leaves out gets its usual value. Of another object, such a field stays as it is.
func (w *wanted) complete() map[string]any {
	full := maps.Clone(w.values)
	if w.present != nil && !w.present.applied {
		return full
	}
	for _, f := range w.kind.fields {
		if _, given := full[f.name]; !given && !f.isFile && !f.isFixed && !slices.Contains(w.kind.keys, f.name) {
			full[f.name] = f.fallback
		}
	}
	return full
}

func (c *change) compareField(f field, full map[string]any) {
	value, isWanted := full[f.name]
	_, given := c.wanted.values[f.name]
	isKey := slices.Contains(c.kind.keys, f.name)
	switch {
	case f.name == "headers_file":
		c.compareHeaders()
	case f.isFile || !isWanted || (isKey || f.isFixed) && c.action == update:
	case c.action == create:
		if given || f.isSent {
			c.fields[f.name] = value
		}
		if given && !isKey {
			c.shown = append(c.shown, f.name+" "+show(f.name, value))
		}
	default:
		had, known := c.object.fields[f.name]
		if !known && !given { // an older server
			return
		}
		before := normal(had, f.isSet)
		if !reflect.DeepEqual(before, value) {
			c.fields[f.name] = value
			c.shown = append(c.shown, f.name+" "+showChange(f.name, before, value))
		}
	}
}

// compareHeaders compares the names of the headers, because the server never shows their values.
func (c *change) compareHeaders() {
	given := c.wanted.headers != nil
	if c.object != nil && !given && !c.object.applied {
		return
	}
	before := []string{}
	if c.object != nil {
		had, _ := c.object.fields["headers"].(map[string]any)
		for name := range had {
			before = append(before, strings.ToLower(name))
		}
	}
	after := []string{}
	for name := range c.wanted.headers {
		after = append(after, strings.ToLower(name))
	}
	slices.Sort(before)
	slices.Sort(after)
	if slices.Equal(before, after) {
		if _, moves := c.fields["url"]; moves && given { // another host gets the headers only with their values
			c.fields["headers"] = c.wanted.headers
		}
		return
	}
	c.fields["headers"] = map[string]any{}
	if given {
		c.fields["headers"] = c.wanted.headers
	}
	text := "headers " + show("", toAny(after))
	if c.object != nil {
		text = "headers " + show("", toAny(before)) + " -> " + show("", toAny(after))
	}
	c.shown = append(c.shown, text)
}

func toAny(list []string) []any {
	result := make([]any, len(list))
	for i, text := range list {
		result[i] = text
	}
	return result
}

// maxValue is how many characters of a value are printed.
const maxValue = 80

// show returns a value as it is printed.
func show(field string, value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case []any:
		texts := make([]string, len(value))
		for i, item := range value {
			texts[i] = fmt.Sprint(item)
		}
		return output.Escape(output.Shorten("["+strings.Join(texts, " ")+"]", maxValue))
	case float64:
		return fmt.Sprintf("%.0f", value)
	case string:
		if field == "url" {
			return hostOf(value)
		}
		if value == "" || strings.ContainsAny(value, " \n\t") {
			return output.Quote(value)
		}
		return output.Escape(output.Shorten(value, maxValue))
	}
	return fmt.Sprint(value)
}

// hostOf returns a URL without its path and its query, which are often secrets of the receiver.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "…"
	}
	short := u.Scheme + "://" + u.Host
	if u.RequestURI() != "/" {
		short += "/…"
	}
	return output.Escape(short)
}

func showChange(field string, before, after any) string {
	from, to := show(field, before), show(field, after)
	if from == to {
		return from + " (another one)"
	}
	return from + " -> " + to
}

// styles are the colours of the actions.
var styles = map[string]output.Style{create: output.Green, update: output.Yellow, remove: output.Red}

// print prints the difference.
func (p plan) print(out output.Printer) error {
	var b strings.Builder
	for _, c := range p.changes {
		var line strings.Builder
		line.WriteString(c.action + " " + c.title())
		for _, text := range c.shown {
			line.WriteString("  " + text)
		}
		b.WriteString(out.Palette.Paint(styles[c.action], line.String()) + "\n")
	}
	fmt.Fprintf(&b, "= %d unchanged\n", p.unchanged)
	return out.Write(b.String())
}

// question asks whether to remove what the plan removes. It is empty if the plan removes nothing. It names each organization that has
// something: such an organization is closed, and nobody can open it again.
func (p plan) question() string {
	removed, closed := 0, []string{}
	for _, c := range p.changes {
		if c.action != remove {
			continue
		}
		removed++
		if c.kind == organizations && len(c.shown) > 0 {
			closed = append(closed, fmt.Sprintf("\n  %s %s: %s", c.name, output.Quote(c.object.text("name")), strings.Join(c.shown, ", ")))
		}
	}
	switch {
	case removed == 0:
		return ""
	case len(closed) == 0:
		return fmt.Sprintf("Remove %s?", output.Count(removed, "object", "objects"))
	}
	return fmt.Sprintf("This closes %s for good, with keys, events and pending deliveries:%s\nRemove %s?",
		output.Count(len(closed), "organization", "organizations"), strings.Join(closed, ""), output.Count(removed, "object", "objects"))
}

// makesSecrets reports whether a new subscription gets a secret that somebody has to store.
func (p plan) makesSecrets() bool {
	return slices.ContainsFunc(p.changes, func(c change) bool {
		return c.action == create && c.kind == subscriptions && c.wanted.secret == ""
	})
}

func (c *change) title() string { return c.kind.name + " " + output.Escape(c.name) }
