package diagnosis

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// rewriting is a JSON text written in another way, with numbers and members as they are.
type rewriting struct {
	text []byte
	how  string
}

// rewritings writes a JSON text in the ways of those who parse and write it again. A receiver can tell from them what
// the signed bytes were if no number has changed.
func rewritings(body []byte) []rewriting {
	if !json.Valid(body) {
		return nil
	}
	var all []rewriting
	for _, order := range orders {
		ordered := order.rewrite(body)
		if ordered == nil {
			continue
		}
		for _, writing := range characters {
			escaped := writing.rewrite(ordered)
			for _, space := range spaces {
				if text := space.rewrite(escaped); text != nil {
					all = append(all, rewriting{text, phrase(space.how, order.how, writing.how)})
				}
			}
		}
	}
	return all
}

// phrase joins what was done.
func phrase(how ...string) string {
	return strings.Join(slices.DeleteFunc(how, func(s string) bool { return s == "" }), ", ")
}

// way is one way to write JSON. rewrite returns nil where it cannot.
type way struct {
	how     string
	rewrite func([]byte) []byte
}

// asItIs leaves a text alone.
func asItIs(text []byte) []byte { return text }

var spaces = []way{
	{"", asItIs},
	{"without white space, as JSON.stringify writes it", format(jsontext.Multiline(false))},
	{"with a space after each comma and colon, as Python's json.dumps writes it", format(jsontext.SpaceAfterColon(true), jsontext.SpaceAfterComma(true))},
	{"indented by two spaces", format(jsontext.WithIndent("  "))},
	{"indented by four spaces", format(jsontext.WithIndent("    "))},
	{"indented by tabs", format(jsontext.WithIndent("\t"))},
}

var orders = []way{
	{"", asItIs},
	{"with its keys in the order in which they are sent", inOrderSent},
	{"with its keys sorted", format(jsontext.ReorderRawObjects(true))},
}

var characters = []way{
	{"", asItIs},
	{"with characters as they are in place of escapes", unescape},
	{"with escapes for characters beyond ASCII, as Python's json.dumps writes it", escape(func(r rune) bool { return r >= utf8.RuneSelf })},
	{`with escapes for "<", ">" and "&", as Go's json.Marshal writes it`, escape(func(r rune) bool { return strings.ContainsRune("<>&\u2028\u2029", r) })},
	{`with "\/" for "/", as PHP's json_encode writes it`, func(text []byte) []byte { return bytes.ReplaceAll(text, []byte("/"), []byte(`\/`)) }},
}

// format writes a text by options of jsontext; what they do not say stays as it is.
func format(options ...jsontext.Options) func([]byte) []byte {
	options = append([]jsontext.Options{
		jsontext.PreserveRawStrings(true), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true),
	}, options...)
	return func(text []byte) []byte {
		v := jsontext.Value(slices.Clone(text))
		if v.Format(options...) != nil {
			return nil
		}
		return v
	}
}

// inOrderSent puts the members of an event where the sender has them; it returns nil for anything else.
func inOrderSent(text []byte) []byte {
	var event map[string]json.RawMessage
	names := []string{"id", "type", "timestamp", "organization_id", "data"}
	if json.Unmarshal(text, &event) != nil || len(event) != len(names) {
		return nil
	}
	var members []string
	for _, name := range names {
		if event[name] == nil {
			return nil
		}
		members = append(members, `"`+name+`":`+string(event[name]))
	}
	return []byte("{" + strings.Join(members, ",") + "}")
}

// escape replaces characters, which JSON can have within strings alone.
func escape(those func(rune) bool) func([]byte) []byte {
	return func(text []byte) []byte {
		var out []byte
		for _, r := range string(text) {
			switch high, low := utf16.EncodeRune(r); {
			case !those(r):
				out = utf8.AppendRune(out, r)
			case high != utf8.RuneError:
				out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
			default:
				out = fmt.Appendf(out, `\u%04x`, r)
			}
		}
		return out
	}
}

// unescape puts characters in the place of escapes, of those that need none.
func unescape(text []byte) []byte {
	var out []byte
	for len(text) > 0 {
		switch {
		case text[0] != '\\':
			out, text = append(out, text[0]), text[1:]
		case bytes.HasPrefix(text, []byte(`\/`)):
			out, text = append(out, '/'), text[2:]
		case text[1] == 'u':
			n := 6
			if len(text) >= 12 && text[6] == '\\' && text[7] == 'u' {
				n = 12 // perhaps two halves of one character
			}
			var s string
			if json.Unmarshal(slices.Concat([]byte(`"`), text[:n], []byte(`"`)), &s) != nil || n == 12 && utf8.RuneCountInString(s) == 2 {
				n = 6
				_ = json.Unmarshal(slices.Concat([]byte(`"`), text[:n], []byte(`"`)), &s) // the text is valid JSON
			}
			if r, _ := utf8.DecodeRuneInString(s); r < ' ' || r == '"' || r == '\\' || r == utf8.RuneError {
				s = string(text[:n])
			}
			out, text = append(out, s...), text[n:]
		default:
			out, text = append(out, text[:2]...), text[2:]
		}
	}
	return out
}
