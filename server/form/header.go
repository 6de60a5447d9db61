package form

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyhook/keyhook/storage/redact"
	"github.com/keyhook/keyhook/storage/webhook"
)

const headers = `an object of strings, such as {"Authorization": "Bearer …"}`

// Headers returns the own request headers of a subscription. A header without a value was null in the body. prefix is the prefix of
// Keyhook's own headers. No problem shows a value.
func (f *Form) Headers(name, prefix string) *[]webhook.Header {
	value := f.take(name)
	if value == nil {
		return nil
	}
	if value.Kind() != jsontext.KindBeginObject {
		f.wrongType(name, headers)
		return nil
	}
	members, err := parseObject(nil, value, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil || len(members) > webhook.MaxHeaders {
		f.Refuse(name, "too_many", "This may have at most %d headers.", webhook.MaxHeaders)
		return nil
	}
	list := make([]webhook.Header, 0, len(members))
	for _, m := range members {
		list = append(list, f.header(name+".", prefix, m, list))
	}
	return &list
}

// header reads one header. before are the headers before it in the object.
func (f *Form) header(path, prefix string, m member, before []webhook.Header) webhook.Header {
	h := webhook.Header{Name: string(m.name)}
	path += truncate(m.name, MaxName)
	switch {
	case !webhook.ValidHeaderName(h.Name):
		f.Refuse(path, "invalid", "The name of a header has 1 to %d letters, digits and hyphens.", webhook.MaxHeaderName)
	case webhook.ReservedHeader(h.Name, prefix):
		f.Refuse(path, "reserved_header", "Keyhook, HTTP or a proxy sets this header; remove it or choose another name.")
	}
	for _, other := range before {
		if strings.EqualFold(other.Name, h.Name) {
			f.Refuse(path, "duplicate", "This header occurs twice. The names of headers are not case-sensitive.")
		}
	}
	if m.value.Kind() == jsontext.KindNull {
		return h
	}
	text := f.textOf(path, m.value, webhook.MaxHeaderValue, "a string, or null to keep the present value")
	switch {
	case text == nil:
	case *text == "":
		f.Refuse(path, "blank", "This must not be empty; leave out the header to remove it.")
	case !webhook.ValidHeaderValue(*text):
		f.Refuse(path, "invalid", "The value of a header has printable ASCII characters, and no space at its ends.")
	default:
		h.Value = redact.New(*text)
	}
	return h
}
