package apply

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
)

// document is the file as it was written. Its mistakes are collected.
type document struct {
	entries  map[*kind][]*entry
	problems []problem
	text     []byte
}

// entry is one object of the file.
type entry struct {
	kind  *kind
	line  int
	lines map[string]int // by field: "plan", "event_types", "event_types.3"
	texts map[string]any // the fields, as JSON has them
}

// parse reads the YAML of a file. A mistake of YAML itself is an error. All others are problems of the document.
func parse(name string, text []byte) (*document, error) {
	doc := &document{entries: map[*kind][]*entry{}, text: text}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root, second yaml.Node
	err := decoder.Decode(&root)
	if errors.Is(err, io.EOF) {
		return nil, Problems{name, []problem{{0, "the file is empty; write at least one section, such as plans:"}}}
	}
	if err == nil {
		if err = decoder.Decode(&second); err == nil {
			doc.wrong(second.Line, "a second document begins here; write everything in one document")
		} else if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err != nil {
		line, what, mend := config.YAMLProblem(text, err)
		return nil, Problems{name, []problem{{line, "this is not valid YAML: " + what + "; " + mend}}}
	}
	top := root.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, Problems{name, []problem{{top.Line, "the file must begin with a section, such as plans:"}}}
	}
	doc.readSections(top)
	return doc, nil
}

func (d *document) wrong(line int, format string, args ...any) {
	d.problems = append(d.problems, problem{line, fmt.Sprintf(format, args...)})
}

func (d *document) readSections(top *yaml.Node) {
	for key, value := range d.members(top) {
		k := kindOfSection(key.Value)
		switch {
		case k == nil:
			d.wrong(key.Line, "%s is not a section; the sections are %s", output.Quote(key.Value), strings.Join(sectionNames(), ", "))
		case value.Kind == yaml.SequenceNode:
			for _, item := range value.Content {
				d.readEntry(k, resolved(item))
			}
		case !isBlank(value):
			d.wrong(value.Line, "%s must be a list; begin each %s with -", k.section, k.name)
		}
	}
}

// readEntry reads one object. Its fields are checked later, when the server is known.
func (d *document) readEntry(k *kind, node *yaml.Node) {
	if node.Kind != yaml.MappingNode {
		d.wrong(node.Line, "%s must have fields, such as %s: …", withArticle(k.name), k.keys[0])
		return
	}
	e := &entry{kind: k, line: node.Line, lines: map[string]int{}, texts: map[string]any{}}
	for key, value := range d.members(node) {
		f := k.field(key.Value)
		if f == nil {
			d.wrong(key.Line, "%s has no field %s; its fields are %s", withArticle(k.name), output.Quote(key.Value), strings.Join(k.fieldNames(), ", "))
			continue
		}
		e.lines[f.name] = value.Line
		for i, item := range value.Content {
			e.lines[f.name+"."+strconv.Itoa(i)] = item.Line
		}
		text, err := toJSON(value)
		switch {
		case isBlank(value) && config.HasComment(d.text, value.Line):
			d.wrong(value.Line, "%s: there is no value, because # begins a comment; write the value in quotes", f.name)
		case err != nil:
			d.wrong(value.Line, "%s: %v", f.name, err)
		case f.isText && value.Kind == yaml.ScalarNode && value.Tag != "!!str" && !isBlank(value):
			d.wrong(value.Line, "%s: this must be a text; write it in quotes: %s: %q", f.name, f.name, output.Escape(value.Value))
		default:
			e.texts[f.name] = text
			continue
		}
		e.texts[f.name] = nil // said already
	}
	d.entries[k] = append(d.entries[k], e)
}

// members yields the keys and values of a mapping. A key that is there twice is a problem, and only the first one counts.
func (d *document) members(mapping *yaml.Node) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		first := map[string]int{}
		for i := 0; i+1 < len(mapping.Content); i += 2 {
			key, value := mapping.Content[i], resolved(mapping.Content[i+1])
			line, again := first[key.Value]
			switch {
			case key.Kind != yaml.ScalarNode || key.Tag != "!!str":
				d.wrong(key.Line, "this must be the name of a field or of a section")
				continue
			case again:
				d.wrong(key.Line, "%s is in line %d already; remove one of the two", output.Quote(key.Value), line)
				continue
			}
			first[key.Value] = key.Line
			if !yield(key, value) {
				return
			}
		}
	}
}

// resolved returns the node that an alias stands for.
func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// isBlank reports whether a field has nothing after its colon.
func isBlank(node *yaml.Node) bool { return node.Tag == "!!null" && node.Value == "" }

// octal finds numbers such as 0600, which are 384.
var octal = regexp.MustCompile("^[-+]?0[0-9_]")

// toJSON returns the value of a field as JSON has it: a scalar, or a list of scalars. A blank value is refused: it would mean null,
// which is "no limit" for a plan.
func toJSON(node *yaml.Node) (any, error) {
	switch {
	case isBlank(node):
		return nil, errors.New("there is no value; write one, or remove the line")
	case node.Kind == yaml.MappingNode:
		return nil, errors.New("this must be one value or a list")
	case node.Kind == yaml.SequenceNode:
		list := make([]any, 0, len(node.Content))
		for _, item := range node.Content {
			if item = resolved(item); item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				return nil, errors.New("each element must be one value")
			}
			value, err := toJSON(item)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	}
	switch node.Tag {
	case "!!null":
		return json.RawMessage("null"), nil
	case "!!bool":
		var value bool
		err := node.Decode(&value)
		return value, err
	case "!!int":
		if octal.MatchString(node.Value) {
			return nil, errors.New("YAML would read this as an octal number; remove the 0 at the beginning")
		}
		var value int64
		if err := node.Decode(&value); err != nil {
			return nil, errors.New("this number is too large")
		}
		return value, nil
	case "!!float":
		var value float64
		if err := node.Decode(&value); err != nil {
			return nil, err
		}
		if text, err := json.Marshal(value); err == nil {
			return json.RawMessage(text), nil
		}
	}
	return node.Value, nil
}
