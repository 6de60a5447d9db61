package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const maxFile = 1 << 20

// document is a configuration file: what it sets, as text with its place, and what is wrong with it. It is read as
// nodes, not into a map, since a map has lost what must be refused: duplicates, nulls, and how a scalar was written.
type document struct {
	path     string
	texts    map[string]string // by setting
	places   map[string]string // by setting: "keyhook.yaml:12"
	problems Problems
}

// readDocument reads the file at path; source says who named it. No path is a file that sets nothing.
func readDocument(path, source string) *document {
	d := &document{path: path, texts: map[string]string{}, places: map[string]string{}}
	if path == "" {
		return d
	}
	data, err := readAtMost(path, maxFile)
	if err != nil {
		d.problems = Problems{{Source: source, Message: fmt.Sprintf("cannot read the file %s: %v", shown(path), reason(err))}}
		return d
	}
	var root yaml.Node
	decoder := yaml.NewDecoder(strings.NewReader(string(data)))
	if err := decoder.Decode(&root); errors.Is(err, io.EOF) {
		return d // nothing but comments
	} else if err != nil {
		d.syntax(err)
		return d
	}
	if err := decoder.Decode(new(yaml.Node)); err == nil {
		d.wrong("", root.Content[0], "is followed by a second document; keep everything in one")
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
	}
	top := root.Content[0]
	if top.Kind == yaml.MappingNode {
		d.section("", top)
	} else if !isNothing(top) {
		d.wrong("", top, "is no mapping; begin with a line like server:")
	}
	return d
}

// quoted is what the parser cites out of the file. A secret may be in it, so it is not passed on.
var quoted = regexp.MustCompile("'[^'<][^']+'|`[^`]*`")

func (d *document) syntax(err error) {
	message := quoted.ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "'…'")
	d.problems = append(d.problems, Problem{Source: d.path, Message: "is not valid YAML: " + message})
}

// section reads the keys of one mapping; prefix is its dotted name with a dot at the end, empty at the top.
func (d *document) section(prefix string, mapping *yaml.Node) {
	seen := map[string]int{}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Tag != "!!str" {
			d.wrong("", key, "has a key that is no plain name; write the name of a setting")
			continue
		}
		name := prefix + key.Value
		if line, again := seen[name]; again {
			d.wrong(name, key, "stands in line "+strconv.Itoa(line)+" already; keep one of the two")
			continue
		}
		seen[name] = key.Line
		s, isSetting := find(name)
		switch {
		case isSetting && prefix != "": // not server.listen: in one word
			d.setting(s, node)
		case prefix == "" && isSection(name):
			d.subsection(name, node)
		default:
			d.unknown(prefix, key, name)
		}
	}
}

func (d *document) subsection(name string, node *yaml.Node) {
	switch {
	case node.Kind == yaml.MappingNode:
		d.section(name+".", node)
	case isNothing(node): // all its settings are commented out
	default:
		d.wrong(name, node, "is a section; write its settings below it, indented")
	}
}

func (d *document) unknown(prefix string, key *yaml.Node, name string) {
	message := shown(name) + " is no setting"
	known := sections()
	for _, s := range Settings() {
		known = append(known, s.Name)
	}
	section, rest, dotted := strings.Cut(key.Value, ".")
	if _, flat := find(key.Value); prefix == "" && dotted && flat {
		message += "; write " + rest + " below " + section + ":, indented"
	} else {
		message += didYouMean(name, "", known) + "; remove it"
	}
	d.wrong("", key, message)
}

// setting takes a scalar as it was written. So 0600 stays four characters and a long number keeps its digits.
func (d *document) setting(s Setting, node *yaml.Node) {
	text, wrong := "", ""
	if node.Kind == yaml.SequenceNode && s.Kind == kindNetworks {
		items := make([]string, 0, len(node.Content))
		for _, item := range node.Content {
			one, bad := scalar(item)
			if bad != "" {
				wrong = "has an item that " + bad
			}
			items = append(items, one)
		}
		text = strings.Join(items, ",")
	} else if text, wrong = scalar(node); wrong == "" && s.Kind == kindNetworks {
		wrong = "is a list; write [10.0.0.0/8], or one item a line with a hyphen before it"
	}
	if wrong != "" {
		d.wrong(s.Name, node, wrong)
		return
	}
	d.texts[s.Name] = text
	d.places[s.Name] = d.place(node)
}

// scalar returns the text of a node, or what is wrong with it. The text itself is never part of that.
func scalar(node *yaml.Node) (text, wrong string) {
	switch {
	case node.Kind == yaml.AliasNode:
		return "", "is a YAML alias; write the value out, in quotes if it begins with *"
	case node.Kind != yaml.ScalarNode:
		return "", "takes a single value, not a list or section"
	case node.Tag == "!!null":
		return "", `has no value; write one, "" for none, or remove the line`
	case node.Tag != "!!str" && node.Tag != "!!int" && node.Tag != "!!float" && node.Tag != "!!bool" && node.Tag != "!!timestamp":
		return "", "has a YAML tag; write the value in quotes if it begins with !"
	}
	return node.Value, ""
}

// isNothing tells a key with nothing behind it from one that says null.
func isNothing(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.Tag == "!!null" && node.Value == ""
}

func (d *document) wrong(name string, node *yaml.Node, message string) {
	d.problems = append(d.problems, Problem{name, d.place(node), message})
}

func (d *document) place(node *yaml.Node) string { return d.path + ":" + strconv.Itoa(node.Line) }

// readAtMost reads a file of up to most bytes.
func readAtMost(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("it is larger than %d bytes", most)
	}
	return data, nil
}

// reason is an error without the path that it names.
func reason(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
