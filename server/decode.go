package server

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyhook/keyhook/storage/fault"
)

// maxDepth bounds how deep a body may nest. Common parsers of receivers stop at 64 to 1,000 levels, and what we take we
// must be able to deliver.
const maxDepth = 100

// member is one name and value of a JSON object. The value is a part of the body.
type member struct {
	name  []byte
	value jsontext.Value
	taken bool
}

// form reads the body as one JSON object. Faults: Malformed where it is none, TooLarge; a refusal where it is not said
// to be JSON.
func (c *call) form() (*form, error) {
	body, err := c.body()
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, fault.New(fault.Malformed, "body_required", "This needs a body: a JSON object.")
	}
	return newForm(body)
}

// optionalForm is form where no body means an empty object.
func (c *call) optionalForm() (*form, error) {
	body, err := c.body()
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return &form{}, nil
	}
	return newForm(body)
}

// body reads the whole body, within the limit of the route.
func (c *call) body() ([]byte, error) {
	r, limit := c.request, c.route.body
	if r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	c.asked = true
	var buffer bytes.Buffer
	if r.ContentLength > 0 {
		// bytes.MinRead more, or ReadFrom would grow the buffer only to find the end.
		buffer.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	if _, err := buffer.ReadFrom(http.MaxBytesReader(c.ResponseWriter, r.Body, limit)); err != nil {
		if _, over := errors.AsType[*http.MaxBytesError](err); over {
			return nil, tooLarge(limit)
		}
		return nil, fault.New(fault.Malformed, "unreadable_body", "The body ended early.").Because(err)
	}
	if buffer.Len() == 0 {
		return nil, nil // chunked, and no chunk: of no type either
	}
	return buffer.Bytes(), isJSON(r.Header)
}

func tooLarge(limit int64) error {
	return fault.New(fault.TooLarge, "too_large", "The limit here is %d bytes.", limit)
}

// isJSON refuses a body that does not claim to be JSON in UTF-8, sent as it is.
func isJSON(h http.Header) error {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return &refusal{http.StatusUnsupportedMediaType, "unsupported_media_type", "Send the body without a Content-Encoding."}
	}
	contentType := h.Get("Content-Type")
	if contentType == "application/json" {
		return nil
	}
	mediaType, parameters, err := mime.ParseMediaType(contentType)
	charset := parameters["charset"]
	if err != nil || mediaType != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return &refusal{http.StatusUnsupportedMediaType, "unsupported_media_type", "Send the body as Content-Type: application/json, in UTF-8."}
	}
	return nil
}

var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// newForm splits a body into the members of its object. It refuses what RFC 7493 calls not interoperable: names given
// twice, invalid UTF-8, lone surrogates; further whatever follows the object, and a byte order mark.
func newForm(body []byte) (*form, error) {
	depth, compact := survey(body)
	if depth > maxDepth {
		return nil, fault.New(fault.Malformed, "invalid_json", "The body nests deeper than %d levels.", maxDepth)
	}
	members, err := split(body)
	if err != nil {
		return nil, notJSON(err)
	}
	return &form{members: members, compact: compact}, nil
}

// notJSON says where the text stops being JSON. What the parser says of the text is ours to know only: it quotes it.
func notJSON(err error) error {
	var at *jsontext.SyntacticError
	switch {
	case errors.Is(err, errNotObject):
		return fault.New(fault.Malformed, "invalid_json", "The body must be a JSON object.")
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &at):
		return fault.New(fault.Malformed, "invalid_json", "The body gives \"%s\" twice in one object.", where(at.JSONPointer)).Because(err)
	case errors.As(err, &at):
		return fault.New(fault.Malformed, "invalid_json", "The body is not valid JSON at byte %d.", at.ByteOffset).Because(err)
	}
	return fault.New(fault.Malformed, "invalid_json", "The body is not valid JSON.").Because(err)
}

// maxPath bounds the part of a path that leads to a name, in characters. What is nearest to the name is kept.
const maxPath = 200

// where names a value in a body as problems with fields do: "data.list.0.name".
func where(p jsontext.Pointer) string {
	path := []string{}
	length := 0
	for name := range p.Tokens() {
		path = append(path, shown(name, maxName))
	}
	for i, name := range slices.Backward(path) {
		if length += utf8.RuneCountInString(name) + 1; length > maxPath {
			return "…" + strings.Join(path[i+1:], ".")
		}
	}
	return strings.Join(path, ".")
}

var errNotObject = errors.New("not a JSON object")

// split returns the members of the one JSON object that text is.
func split(text []byte, options ...jsontext.Options) ([]member, error) {
	decoder := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(decoder)
	decoder.Reset(bytes.NewBuffer(text), options...)
	if kind := decoder.PeekKind(); kind != jsontext.KindBeginObject && kind != jsontext.KindInvalid {
		return nil, errNotObject
	}
	if _, err := decoder.ReadToken(); err != nil {
		return nil, err
	}
	members := make([]member, 0, 4)
	for decoder.PeekKind() != jsontext.KindEndObject {
		name, err := decoder.ReadValue()
		if err != nil {
			return nil, err
		}
		m := member{name: text[decoder.InputOffset()-int64(len(name)) : decoder.InputOffset()]}
		value, err := decoder.ReadValue()
		if err != nil {
			return nil, err
		}
		m.value = text[decoder.InputOffset()-int64(len(value)) : decoder.InputOffset()]
		if bytes.IndexByte(m.name, '\\') < 0 {
			m.name = m.name[1 : len(m.name)-1]
		} else if m.name, err = jsontext.AppendUnquote(nil, m.name); err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	if _, err := decoder.ReadToken(); err != nil {
		return nil, err
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, errTrailing)
	}
	return members, nil
}

// elements returns the values of an array that is known to be valid.
func elements(array jsontext.Value) []jsontext.Value {
	decoder := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(decoder)
	decoder.Reset(bytes.NewBuffer(array), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	values := []jsontext.Value{}
	for _, err := decoder.ReadToken(); err == nil && decoder.PeekKind() != jsontext.KindEndArray; {
		var value jsontext.Value
		if value, err = decoder.ReadValue(); err == nil {
			end := decoder.InputOffset()
			values = append(values, array[end-int64(len(value)):end])
		}
	}
	return values
}

var errTrailing = errors.New("something follows the object")

// survey measures a text before it is parsed: how deep it nests, and whether it is free of white space between tokens.
// Of a text that is no JSON it says nothing useful, and harms nothing.
func survey(text []byte) (deepest int, compact bool) {
	depth, quoted := 0, false
	compact = true
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case quoted:
			if b == '\\' {
				i++
			} else if b == '"' {
				quoted = false
			}
		case b == '"':
			quoted = true
		case b == '{' || b == '[':
			depth++
			deepest = max(deepest, depth)
		case b == '}' || b == ']':
			depth--
		case b == ' ' || b == '\n' || b == '\r' || b == '\t':
			compact = false
		}
	}
	return deepest, compact
}
