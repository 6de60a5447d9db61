package apply

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/keyhook/keyhook/server/cli/output"
)

// The actions of a change, as the server names them.
const (
	create = "create"
	update = "update"
	remove = "remove"
)

// difference is what differs between the file and the server.
type difference struct {
	Changes   []change
	Unchanged int
}

type change struct {
	Action, Kind, Key string
	Path              string // empty for a removal
	Fields            []struct {
		Name     string
		From, To any
	}
}

// shown returns what is printed behind the name.
func (c change) shown() (texts []string) {
	for _, f := range c.Fields {
		from, to := show(f.Name, f.From), show(f.Name, f.To)
		switch {
		case c.Action == remove:
			to = from
		case c.Action == update && from == to:
			to += " (another one)"
		case c.Action == update:
			to = from + " -> " + to
		}
		texts = append(texts, output.Escape(f.Name)+" "+to)
	}
	return texts
}

// maxValue is how many characters of a value are printed.
const maxValue = 80

func show(field string, value any) string {
	text, isText := value.(string)
	switch list, isList := value.([]any); {
	case isText && field == "url":
		return hostOf(text)
	case isText && (text == "" || strings.ContainsAny(text, " \n\t")):
		return output.Quote(text)
	case isList && !slices.ContainsFunc(list, func(item any) bool { _, is := item.(map[string]any); return is }): // no objects
		text = fmt.Sprint(list)
	case !isText:
		encoded, _ := json.Marshal(value) // of a response
		text = string(encoded)
	}
	return output.Escape(output.Shorten(text, maxValue))
}

// hostOf returns a URL without its path and its query, which are often secrets of the receiver.
func hostOf(text string) string {
	if text == "" {
		return "none"
	}
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

// marks are how actions are printed.
var marks = map[string]string{create: "+", update: "~", remove: "-"}

func (d difference) print(out output.Printer) error {
	var b strings.Builder
	for _, c := range d.Changes {
		name := marks[c.Action] + " " + c.Kind + " " + output.Escape(c.Key)
		b.WriteString(strings.Join(append([]string{name}, c.shown()...), "  ") + "\n")
	}
	fmt.Fprintf(&b, "= %d unchanged\n", d.Unchanged)
	return out.Write(b.String())
}

// question asks whether to remove what was printed before, if the server would remove anything. removals is what it asks about.
func (d difference) question() (text string, removals []string) {
	removals, closed := []string{}, 0
	for _, c := range d.Changes {
		if c.Action == remove {
			as := c.Kind + " " + c.Key
			if len(c.Fields) > 0 { // an organization with something that ends
				closed, as = closed+1, "close "+as
			}
			removals = append(removals, as)
		}
	}
	if len(removals) > 0 {
		text = fmt.Sprintf("Remove %s?", output.Count(len(removals), "object", "objects"))
	}
	if closed > 0 {
		text += fmt.Sprintf(" This closes %s for good.", output.Count(closed, "organization", "organizations"))
	}
	return text, removals
}
