package form

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// JSONProblem says where a text is not valid JSON, and what to write there. It returns "" for valid JSON.
func JSONProblem(text []byte) string {
	decoder := newDecoder(text)
	defer decoder.release()
	if _, err := decoder.ReadValue(); err != nil {
		at := &jsontext.SyntacticError{ByteOffset: int64(len(text))} // no text at all
		if errors.As(err, &at) && errors.Is(err, jsontext.ErrDuplicateName) {
			return "\"" + fieldPath(at.JSONPointer) + "\" is there twice in one object; write each name once"
		}
		return syntaxProblem(text, at)
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return "text follows the first value; write only one value"
	}
	return ""
}

// syntaxProblem says where a text is not valid JSON: the line and the column, the byte, and the field. Then it says what to write. Of the
// text, it shows only names of fields, because logs must not have the values.
func syntaxProblem(text []byte, at *jsontext.SyntacticError) string {
	offset := int(min(max(at.ByteOffset, 0), int64(len(text))))
	before, rest := text[:offset], text[offset:]
	place := fmt.Sprintf("line %d, column %d (byte %d)", 1+bytes.Count(before, []byte("\n")), 1+utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]), offset)
	if path := fieldPath(at.JSONPointer); path != "" {
		place += ", in " + path
	}
	return place + ": " + syntaxMend(bytes.TrimRight(before, " \t\r\n"), rest)
}

// syntaxMend says what to write where the rest of a text is not valid JSON.
func syntaxMend(before, rest []byte) string {
	next, size := utf8.DecodeRune(rest)
	switch {
	case size == 0:
		return `the text ends too early; a ", a } or a ] is missing`
	case next == utf8.RuneError && size == 1:
		return "this is not UTF-8; encode the text as UTF-8"
	case next == '\ufeff':
		return "a byte order mark begins the text; leave it out"
	case next < ' ':
		return `write a line break in a text as \n, and other control characters as \u0000`
	case next == '\\':
		return `after a backslash stand only " \ / b f n r t, or u and four hex digits; the two halves of a character above U+FFFF stand together`
	case next == '\'':
		return "write names and texts in double quotes, not in single quotes"
	case (next == '}' || next == ']') && bytes.HasSuffix(before, []byte(",")):
		return "remove the comma before this"
	case next == ',':
		return "remove this comma, or write a name or a value between the commas"
	case next == '/' || next == '#':
		return "JSON has no comments; remove this"
	case next == '"':
		return "a comma or a colon is missing before this"
	case strings.ContainsRune("0123456789.+-", next):
		return "write a number as 0.5, 10 or -3: no 0 or + before it, and digits on both sides of the dot"
	case next == '_' || next >= 'a' && next <= 'z' || next >= 'A' && next <= 'Z':
		return "write names and texts in double quotes; only true, false, null and numbers have none"
	}
	return "this character cannot stand here"
}
