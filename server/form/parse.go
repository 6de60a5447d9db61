package form

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyhook/keyhook/storage/fault"
	"github.com/keyhook/keyhook/storage/webhook"
)

// maxDepth is the deepest nesting of a body. Common JSON parsers stop at 64 to 1,000 levels, and receivers must be able to read
// what Keyhook accepts.
const maxDepth = 100

// member is one name and value of a JSON object. The value is a slice of the body.
type member struct {
	name  []byte
	value jsontext.Value
	read  bool
}

// decoder is a decoder with the reader that it reads from.
type decoder struct {
	jsontext.Decoder
	text bytes.Buffer
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

// newDecoder returns a decoder of a text. The caller releases it.
func newDecoder(text []byte, options ...jsontext.Options) *decoder {
	d := decoders.Get().(*decoder)
	d.text = *bytes.NewBuffer(text)
	d.Reset(&d.text, options...)
	return d
}

// release drops the reference to the text and returns the decoder to the pool.
func (d *decoder) release() {
	d.text = bytes.Buffer{}
	d.Reset(http.NoBody)
	decoders.Put(d)
}

// parsers limits how many texts longer than quickText are parsed at the same time, to the number of processors. To find duplicate
// names, the parser may use ten times the memory of the text.
var parsers = make(chan struct{}, runtime.GOMAXPROCS(0))

const quickText = 16 << 10

// Parse reads a body that is one JSON object. It refuses what RFC 7493 calls not interoperable: duplicate names, invalid UTF-8, lone
// surrogates. It also refuses a byte order mark and text after the object. Faults: Malformed, Invalid.
//
// To find duplicate names in nested objects, the parser remembers all names of an object, which takes many times the memory of the
// body. So for a body larger than one event, Parse compares only the names of the outer object. readEvent compares the names in
// each event after it has checked its size.
func Parse(body []byte) *Form {
	depth, compact := measure(body)
	if depth > maxDepth {
		return Failed(fault.New(fault.Malformed, "invalid_json", "The body is nested too deeply; use at most %d levels.", maxDepth))
	}
	large := len(body) > webhook.MaxEvent
	f := &Form{compact: compact, unchecked: large}
	var err error
	if f.members, err = parseObject(f.first[:0], body, jsontext.AllowDuplicateNames(large)); err != nil {
		return Failed(notJSON(err, "", body))
	}
	if large {
		if name, twice := duplicateMember(f.members); twice {
			return Failed(duplicateName(Printable(name, MaxName)))
		}
	}
	return f
}

// duplicateMember returns the first name that occurs twice in an object.
func duplicateMember(members []member) (name string, twice bool) {
	seen := make(map[string]struct{}, len(members))
	for _, m := range members {
		if _, twice := seen[string(m.name)]; twice {
			return string(m.name), true
		}
		seen[string(m.name)] = struct{}{}
	}
	return "", false
}

func duplicateName(name string) *fault.Error {
	return fault.New(fault.Malformed, "invalid_json", "The body has \"%s\" twice in one object; send each name once.", name)
}

// notJSON says where a text is not valid JSON. path is the field in which the parser started. The error of the parser is for the log
// only, because it quotes the body.
func notJSON(err error, path string, text []byte) error {
	var at *jsontext.SyntacticError
	switch {
	case errors.Is(err, errTooManyFields):
		f := &Form{}
		f.refuseFields("")
		return f.Err()
	case errors.Is(err, errNotObject):
		return fault.New(fault.Malformed, "invalid_json", "The body must be one JSON object, {…}, and not an array or another value.")
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &at):
		return duplicateName(path + fieldPath(at.JSONPointer)).Because(err)
	case errors.Is(err, errTrailingText):
		return fault.New(fault.Malformed, "invalid_json", "After the JSON object of the body, more text follows; send only one object.").Because(err)
	case errors.As(err, &at):
		return fault.New(fault.Malformed, "invalid_json", "The body is not valid JSON in %s.", place(text, at)).Because(err)
	}
	return fault.New(fault.Malformed, "invalid_json", "The body is not valid JSON.").Because(err)
}

// maxPath is the most characters of a path in a message.
const maxPath = 200

// fieldPath names a value in a body as in problems: "data.list.0.name".
func fieldPath(p jsontext.Pointer) string {
	return Printable(strings.Join(slices.Collect(p.Tokens()), "."), maxPath)
}

// maxFields is the most fields of an object. It does not apply to the data of an event, which is not read field by field.
const maxFields = 1000

var (
	errNotObject     = errors.New("not a JSON object")
	errTooManyFields = errors.New("too many fields")
	errTrailingText  = errors.New("text follows the object")
)

func (f *Form) refuseFields(name string) {
	f.Refuse(name, "too_many_fields", "This object may have at most %d fields.", maxFields)
}

func parseObject(members []member, text []byte, options ...jsontext.Options) ([]member, error) {
	if len(text) > quickText {
		parsers <- struct{}{}
		defer func() { <-parsers }()
	}
	decoder := newDecoder(text, options...)
	defer decoder.release()
	if kind := decoder.PeekKind(); kind != jsontext.KindBeginObject && kind != jsontext.KindInvalid {
		return nil, errNotObject
	}
	if _, err := decoder.ReadToken(); err != nil {
		return nil, err
	}
	for decoder.PeekKind() != jsontext.KindEndObject {
		m, err := readMember(decoder, text)
		if err != nil {
			return nil, err
		}
		if len(members) == maxFields {
			return nil, errTooManyFields
		}
		members = append(members, m)
	}
	if _, err := decoder.ReadToken(); err != nil {
		return nil, err
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, errTrailingText)
	}
	return members, nil
}

func readMember(decoder *decoder, text []byte) (m member, err error) {
	name, err := decoder.ReadValue()
	if err != nil {
		return m, err
	}
	m.name = text[decoder.InputOffset()-int64(len(name)) : decoder.InputOffset()]
	value, err := decoder.ReadValue()
	if err != nil {
		return m, err
	}
	m.value = text[decoder.InputOffset()-int64(len(value)) : decoder.InputOffset()]
	if bytes.IndexByte(m.name, '\\') < 0 {
		m.name = m.name[1 : len(m.name)-1]
		return m, nil
	}
	m.name, err = jsontext.AppendUnquote(nil, m.name)
	return m, err
}

// arrayElements returns the values of a valid array, at most max of them.
func arrayElements(array jsontext.Value, max int) []jsontext.Value {
	decoder := newDecoder(array, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	defer decoder.release()
	values := []jsontext.Value{}
	for _, err := decoder.ReadToken(); err == nil && len(values) < max && decoder.PeekKind() != jsontext.KindEndArray; {
		var value jsontext.Value
		if value, err = decoder.ReadValue(); err == nil {
			end := decoder.InputOffset()
			values = append(values, array[end-int64(len(value)):end])
		}
	}
	return values
}

// measure returns the depth of a JSON text, and whether it has no white space between tokens. For other texts the result has no meaning.
func measure(text []byte) (deepest int, compact bool) {
	depth := 0
	compact = true
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = endOfString(text, i)
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		case ' ', '\n', '\r', '\t':
			compact = false
		}
	}
	return deepest, compact
}

// endOfString returns the index of the quote that ends the string that begins at i, or the length of the text. bytes.IndexByte
// reads 16 bytes and more at a time, but most strings with an escape have many.
func endOfString(text []byte, i int) int {
	i++
	quote := bytes.IndexByte(text[i:], '"')
	if quote < 0 {
		return len(text)
	}
	escape := bytes.IndexByte(text[i:i+quote], '\\')
	if escape < 0 {
		return i + quote
	}
	for i += escape; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(text)
}

// Unmarshal reads JSON from outside into a struct. It compares names exactly, and refuses a name that an object has twice, and text
// that is not UTF-8. encoding/json takes "Sub" for "sub", and the last of two names.
func Unmarshal(text []byte, into any) error { return json.Unmarshal(text, into) }

// Layout is how a program writes JSON.
type Layout struct {
	Spaced   bool // a space after each colon and comma
	Indented bool // each member on a line, by two spaces
	Sorted   bool // members in the order of their names
	Escapes  bool // strings keep their escapes; otherwise they have only those that JSON needs
}

// Rewrite writes JSON in a layout. Numbers stay as they are. It returns nil for other text.
func Rewrite(text []byte, l Layout) []byte {
	v := jsontext.Value(slices.Clone(text))
	options := []jsontext.Options{
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(l.Escapes),
		jsontext.SpaceAfterColon(l.Spaced || l.Indented), jsontext.SpaceAfterComma(l.Spaced), jsontext.ReorderRawObjects(l.Sorted),
	}
	if l.Indented {
		options = append(options, jsontext.WithIndent("  "))
	}
	if v.Format(options...) != nil {
		return nil
	}
	return v
}

// place says where a text is not valid JSON: the line and the column, the byte, and the field. Of the text, it shows only names of fields,
// because logs must not have the values.
func place(text []byte, at *jsontext.SyntacticError) string {
	before := text[:min(max(at.ByteOffset, 0), int64(len(text)))]
	where := fmt.Sprintf("line %d, column %d (byte %d)", 1+bytes.Count(before, []byte("\n")), 1+utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]), len(before))
	if path := fieldPath(at.JSONPointer); path != "" {
		where += ", in " + path
	}
	return where
}
