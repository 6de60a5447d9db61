package config

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// yamlMends say what to write where the YAML parser stops, by its message. The first that is in the message counts. Errors of the grammar
// count lines from 0, errors in characters from 1.
var yamlMends = []struct {
	message, mend string
	isGrammar     bool
}{
	{"cannot start any token", "write a value that begins with @, %, | or ` in quotes", false},
	{"alphabetic or numeric", "write a value that begins with * or & in quotes", false},
	{"mapping values are not allowed", "write a value with a colon in quotes, and each name in a line of its own; or the line before lacks its colon", false},
	{"could not find expected ':'", "write a colon and a space after the name", false},
	{"end of stream", "a quote is not closed", false},
	{"',' or", "a { or a [ is not closed; a # after a space begins a comment, so write a value with # in quotes", true},
	{"document start", "write each section as a name with a colon, and the names in it below, indented", true},
	{"did not find expected", "indent the lines of one section equally, and write a colon after each name", true},
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// YAMLProblem says why a text is no YAML: the line, what is wrong, and what to write. It shows nothing of the text, which may have
// secrets. err is the error of the parser. The line is 0 if nobody knows it.
func YAMLProblem(text []byte, err error) (line int, what, mend string) {
	number := 0
	for row := range bytes.Lines(text) {
		number++
		indent := row[:len(row)-len(bytes.TrimLeft(row, " \t"))]
		tab := bytes.IndexByte(indent, '\t')
		switch {
		case !utf8.Valid(row):
			return number, "the text is not UTF-8", "save the file as UTF-8"
		case tab >= 0:
			return number, "column " + strconv.Itoa(tab+1) + " is a tab", "indent with spaces; YAML allows no tabs there"
		}
	}
	what = quoted.ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "'…'")
	if found := yamlLine.FindStringSubmatch(what); found != nil {
		line, _ = strconv.Atoi(found[1])
		what = strings.Replace(what, found[0], "", 1)
	}
	for _, known := range yamlMends {
		if !strings.Contains(err.Error(), known.message) {
			continue
		}
		if line == 0 || known.isGrammar { // the parser leaves the first line out
			line++
		}
		return line, what, known.mend
	}
	return line, what, "correct that line, or the line before it"
}

// quoted is text that the YAML parser quotes from the file. It may be a secret, so it is removed.
var quoted = regexp.MustCompile("'[^'<][^']+'|`[^`]*`")

// HasComment reports whether a line has a # that begins a comment. It tells why a field has no value: "name: #8".
func HasComment(text []byte, line int) bool {
	rows := bytes.Split(text, []byte("\n"))
	return line >= 1 && line <= len(rows) && bytes.Contains(rows[line-1], []byte(" #"))
}
