package apply

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
)

// document is the file as it was written. Its mistakes are collected.
type document struct {
	entries  []*entry       // each after those that it may refer to
	sections map[string]int // lines
	problems []problem
}

// entry is one object of the file.
type entry struct {
	section string
	line    int
	lines   map[string]int    // by field: "plan", "event_types", "event_types.3"
	fields  map[string]any    // as JSON has them
	files   map[string]string // names of files with secrets, by field
	secret  string            // of a new subscription
}

// The fields that name files. The server gets what is in the files.
const (
	headersFile = "headers_file"
	secretFile  = "secret_file"
)

// sectionOrder is the order of the sections: an object refers to objects of earlier sections only.
var sectionOrder = []string{"plans", "permissions", "roles", "event_types", "organizations", "users", "members", "subscriptions"}

// title names an entry in a problem.
func (e *entry) title() string {
	var key []string
	for _, field := range []string{"organization", "user", "name", "key", "type", "external_id"} {
		text, isText := e.fields[field].(string)
		if isText && (field != "name" || e.fields["external_id"] == nil) { // the name of an organization is not its key
			key = append(key, output.Escape(text))
		}
	}
	return strings.TrimSpace(strings.TrimSuffix(e.section, "s") + " " + strings.Join(key, "/"))
}

// lineOf returns the line of a field, or of the closest thing around it that has a line.
func (e *entry) lineOf(field string) int {
	for field != "" {
		if line := e.lines[field]; line != 0 {
			return line
		}
		field = field[:max(strings.LastIndexByte(field, '.'), 0)]
	}
	return e.line
}

// parse reads the YAML of a file. A mistake of YAML itself is an error. All others are problems of the document.
func parse(name string, text []byte) (*document, error) {
	doc := &document{sections: map[string]int{}}
	top, second, err := config.ParseYAML(text)
	if err == nil && top != nil {
		err = top.Decode(new(any)) // finds a name that is there twice, and an alias inside itself, which has no end
	}
	if wrong, is := errors.AsType[*yaml.TypeError](err); is {
		for _, text := range wrong.Errors {
			line, what := config.YAMLProblem(errors.New(text))
			doc.wrong(line, "%s", what)
		}
		err = nil
	}
	if second != nil {
		doc.wrong(second.Line, "a second document begins here; write everything in one document")
	}
	switch {
	case err != nil:
		line, what := config.YAMLProblem(err)
		return nil, Problems{file: name, problems: []problem{{line, "this is not valid YAML: " + what + "; " + config.YAMLMend}}}
	case top == nil:
		return nil, Problems{file: name, problems: []problem{{0, "the file is empty; write at least one section, such as plans:"}}}
	case top.Kind != yaml.MappingNode:
		return nil, Problems{file: name, problems: []problem{{top.Line, "the file must begin with a section, such as plans:"}}}
	}
	doc.readSections(top)
	return doc, nil
}

func (d *document) wrong(line int, format string, args ...any) {
	d.problems = append(d.problems, problem{line, fmt.Sprintf(format, args...)})
}

func (d *document) readSections(top *yaml.Node) {
	for key, value := range d.members(top) {
		section := key.Value
		d.sections[section] = key.Line
		switch {
		case !slices.Contains(sectionOrder, section):
			d.wrong(key.Line, "%s is not a section; the sections are %s", output.Quote(section), strings.Join(sectionOrder, ", "))
		case value.Kind == yaml.SequenceNode:
			for _, item := range value.Content {
				d.readEntry(section, item.Line, resolved(item))
			}
		case !config.IsBlank(value):
			d.wrong(value.Line, "%s must be a list; begin each element with -", section)
		}
	}
	slices.SortStableFunc(d.entries, func(a, b *entry) int {
		return slices.Index(sectionOrder, a.section) - slices.Index(sectionOrder, b.section)
	})
}

// readEntry reads one object, which an alias may name. The server checks its fields.
func (d *document) readEntry(section string, line int, node *yaml.Node) {
	e := &entry{section: section, line: line, lines: map[string]int{}, fields: map[string]any{}, files: map[string]string{}}
	if node.Kind != yaml.MappingNode {
		d.wrong(node.Line, "an element of %s must have fields, such as name: …", section)
		return
	}
	for key, value := range d.members(node) {
		name := key.Value
		e.lines[name] = value.Line
		for i, item := range value.Content {
			e.lines[name+"."+strconv.Itoa(i)] = item.Line
		}
		content, err := toJSON(value)
		switch {
		case section == "subscriptions" && (name == "headers" || name == "secret"):
			d.wrong(key.Line, "%s: no secret stands in this file; write it to another file, and name that one with %s_file", name, name)
		case err != nil:
			d.wrong(value.Line, "%s: %v", output.Escape(name), err)
		case section == "subscriptions" && (name == headersFile || name == secretFile):
			if e.files[name] = value.Value; value.Tag != "!!str" || value.Value == "" {
				d.wrong(value.Line, "%s: this must be the name of a file", name)
			}
		default:
			e.fields[name] = content
		}
	}
	d.entries = append(d.entries, e)
}

// members yields the keys and values of a mapping. A key that is no text is a problem.
func (d *document) members(mapping *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		for pair := range slices.Chunk(mapping.Content, 2) {
			if key := pair[0]; key.Kind != yaml.ScalarNode || key.Tag != "!!str" {
				d.wrong(key.Line, "this must be the name of a field or of a section")
			} else if !yield(key, resolved(pair[1])) {
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

// toJSON returns a value as JSON has it. A blank value is refused: it would mean null, which is "no limit" for a plan. The server knows
// which values a field takes.
func toJSON(node *yaml.Node) (any, error) {
	switch {
	case config.IsBlank(node):
		return nil, errors.New("there is no value; write one, in quotes if it has a #, or remove the line")
	case node.Kind == yaml.MappingNode:
		members := map[string]any{}
		for pair := range slices.Chunk(node.Content, 2) {
			if key := pair[0]; key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
				return nil, errors.New("a key must be a text; write out what an alias or << stands for")
			}
			value, err := toJSON(resolved(pair[1]))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", output.Escape(pair[0].Value), err)
			}
			members[pair[0].Value] = value
		}
		return members, nil
	case node.Kind == yaml.SequenceNode:
		list := make([]any, len(node.Content))
		for i, item := range node.Content {
			var err error
			if list[i], err = toJSON(resolved(item)); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	switch node.Tag {
	case "!!null", "!!bool", "!!int", "!!float":
		if node.Tag != "!!null" && json.Valid([]byte(node.Value)) {
			return json.RawMessage(node.Value), nil // a number keeps its digits
		}
		var value any
		err := node.Decode(&value)
		if _, notJSON := json.Marshal(value); notJSON == nil { // JSON has no infinite number
			return value, err
		}
	}
	return node.Value, nil
}

// problem is one mistake in the file.
type problem struct {
	line int    // 0 for the file as a whole
	what string // what is wrong, and what to write instead
}

// Problems are all mistakes in a file. Find it with errors.As.
type Problems struct {
	file     string
	problems []problem
	isPart   bool // earlier parts of the file were applied
}

// Error returns one line for each mistake, in the order of the file.
func (p Problems) Error() string {
	var lines []string
	for _, one := range slices.SortedStableFunc(slices.Values(p.problems), func(a, b problem) int { return cmp.Compare(a.line, b.line) }) {
		where := p.file
		if one.line > 0 {
			where += ":" + strconv.Itoa(one.line)
		}
		lines = append(lines, where+": "+one.what)
	}
	what := map[bool]string{false: "nothing was changed", true: "this part of the file changed nothing"}[p.isPart]
	if len(lines) == 1 {
		return what + "; " + lines[0]
	}
	return fmt.Sprintf("%s; %d problems:\n  %s", what, len(lines), strings.Join(lines, "\n  "))
}
