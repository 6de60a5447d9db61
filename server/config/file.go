package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/keyhook/keyhook/storage/fault"
)

const maxFile = 1 << 20

// file is a configuration file. It is read as YAML nodes, because viper's own reader loses what the problems need: lines,
// duplicate and unknown keys, nulls, and how a scalar was written. Viper gets each value as text.
type file struct {
	path     string
	texts    map[string]any    // by setting
	places   map[string]string // by setting: "keyhook.yaml:12"
	problems Problems
}

// readFile reads the file at path. source is the flag or variable that names it. Without a path, the file is empty.
func readFile(path, source string) *file {
	f := &file{path: path, texts: map[string]any{}, places: map[string]string{}}
	if path == "" {
		return f
	}
	data, err := readAtMost(path, maxFile)
	if err != nil {
		f.problems = Problems{NewProblem("", source, advise(fmt.Sprintf("cannot read the file %s: %v", quote(path), fault.WithoutPath(err)), "check the path and its permissions"))}
		return f
	}
	top, second, err := ParseYAML(data)
	if second != nil {
		f.wrong("", second, advise("a second document begins here", "write all settings in one document"))
	}
	switch {
	case err != nil:
		line, what := YAMLProblem(err)
		place := path
		if line > 0 {
			place += ":" + strconv.Itoa(line)
		}
		f.problems = append(f.problems, NewProblem("", place, advise("the file is not valid YAML: "+what, YAMLMend)))
	case top == nil: // only comments
	case top.Kind == yaml.MappingNode:
		f.section("", top)
	case !IsBlank(top):
		f.wrong("", top, advise("the file is not a mapping", "begin the file with a section, such as server:"))
	}
	return f
}

// ParseYAML returns the first value of a text, nil if it has only comments, and the beginning of a second document, nil if there is none.
func ParseYAML(text []byte) (top, second *yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var first, next yaml.Node
	if err = decoder.Decode(&first); err == nil {
		top = first.Content[0]
		if err = decoder.Decode(&next); err == nil {
			second = &next
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return top, second, err
}

// section reads the keys of a mapping. prefix is its name with a dot, empty at the top of the file.
func (f *file) section(prefix string, mapping *yaml.Node) {
	lines := map[string]int{}
	for pair := range slices.Chunk(mapping.Content, 2) {
		key, value := pair[0], pair[1]
		name := prefix + key.Value
		setting := index(name)
		first, again := lines[name]
		lines[name] = key.Line
		switch {
		case key.Tag != "!!str":
			f.wrong("", key, advise("the key is not a plain name", "write the name of a setting"))
		case again:
			f.wrong(name, key, advise(fmt.Sprintf("the same name is in line %d already", first), "remove one of the two"))
		case setting >= 0 && prefix != "":
			f.setting(allSettings[setting], value)
		case setting >= 0:
			section, rest, _ := strings.Cut(name, ".")
			f.wrong("", key, advise(quote(name)+" must not have a dot in the file", "write "+section+": and below it, indented, "+rest+": with the value"))
		case prefix != "" || !isSection(name):
			f.wrong("", key, advise(quote(name)+" is not a setting", suggest(name, names(), "remove it")))
		case value.Kind == yaml.MappingNode:
			f.section(name+".", value)
		case !IsBlank(value):
			f.wrong(name, value, advise("this name is a section", "write the settings below it, indented"))
		}
	}
}

func (f *file) setting(s Setting, value *yaml.Node) {
	var text string
	var err error
	if s.kind.separator != "" && value.Kind == yaml.SequenceNode {
		text, err = listText(value, s.kind.separator)
	} else if text, err = scalarText("the setting", value); err == nil && s.kind.mend != "" {
		err = advise("the setting is a list", s.kind.mend)
	}
	if err != nil {
		if value.Tag == "!!null" && s.takesNone() {
			err = advise("the setting has no value", `write a value (in quotes if it begins with #), or "" for none, or remove the line`)
		}
		f.wrong(s.Name, value, err)
		return
	}
	if text == "" && s.Default == "" { // as without the line, also for a secret that is in its own file
		return
	}
	f.texts[s.Name], f.places[s.Name] = text, f.place(value)
}

// scalarText returns a scalar as it was written: 0600 keeps its zero, and a long number keeps its digits. The error does not
// show the text, which may be a secret. subject names the scalar in the error.
func scalarText(subject string, node *yaml.Node) (string, error) {
	switch {
	case node.Tag == "!!null":
		return "", advise(subject+" has no value", `write a value (in quotes if it begins with #), or remove the line`)
	case node.Kind != yaml.ScalarNode || !plain.MatchString(node.Tag):
		return "", advise(subject+" is not a single plain value", "write one value, in quotes if it begins with * or !")
	}
	return node.Value, nil
}

var plain = regexp.MustCompile(`^!!(str|int|float|bool|timestamp)$`)

func listText(list *yaml.Node, separator string) (string, error) {
	var items []string
	for _, node := range list.Content {
		item, err := scalarText("an item of the list", node)
		if err != nil {
			return "", err
		}
		items = append(items, item)
	}
	return strings.Join(items, separator), nil
}

// IsBlank reports whether a key has nothing after it, not even null.
func IsBlank(node *yaml.Node) bool { return node.Tag == "!!null" && node.Value == "" }

func (f *file) wrong(name string, node *yaml.Node, err error) {
	f.problems = append(f.problems, NewProblem(name, f.place(node), err))
}

func (f *file) place(node *yaml.Node) string { return f.path + ":" + strconv.Itoa(node.Line) }

func readAtMost(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("the file is larger than %d bytes", most)
	}
	return data, err
}

const maxSecretFile = 16 << 10 // bytes; 20 URLs of alerts are longer than any other secret

// SecretFile reads a file with a secret, which a setting that ends in _FILE or a flag names. It removes one line break at the end, which editors and echo add. Its errors
// show neither the text nor the path, because people sometimes write the secret itself where the path belongs.
func SecretFile(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", advise("cannot read the file: "+fault.WithoutPath(err).Error(), "check the path and its permissions")
	case !info.Mode().IsRegular():
		return "", advise("the path does not lead to a regular file", "write the path of a file that contains only the secret")
	case info.Mode().Perm()&0o002 != 0:
		return "", advise("every user may change the file", "run chmod o-w on the file")
	}
	data, err := readAtMost(path, maxSecretFile)
	if err != nil {
		return "", advise("cannot read the file: "+fault.WithoutPath(err).Error(), "write only the secret into the file, and check its permissions")
	}
	text, found := strings.CutSuffix(string(data), "\n")
	if found {
		text = strings.TrimSuffix(text, "\r")
	}
	if text == "" {
		return "", advise("the file is empty", "write the secret into the file")
	}
	return text, nil
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// YAMLProblem says why a text is no YAML, and where the parser stopped: that line, or a line beside it, is wrong. It shows nothing of the
// text, which may have secrets. err is the error of the parser. The line is 0 if nobody knows it.
func YAMLProblem(err error) (line int, what string) {
	what = quoted.ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "'…'")
	if found := yamlLine.FindStringSubmatch(what); found != nil {
		line, _ = strconv.Atoi(found[1])
		what = strings.Replace(what, found[0], "", 1)
	}
	return line, what
}

// YAMLMend says what to do about a YAMLProblem.
const YAMLMend = "correct that line, or the line before or after it; indent with spaces, and write values with special characters in quotes"

// quoted is text that the YAML parser quotes from the file. It may be a secret, so it is removed.
var quoted = regexp.MustCompile("'[^'<][^']+'|`[^`]*`")
