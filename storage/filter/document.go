package filter

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// Document is the data of an event. It is parsed when the first condition asks for a value. Each value is read once, however many
// conditions ask for it, because a number may be as long as the event. It is not for concurrent use.
type Document struct {
	text   []byte
	root   any
	looked map[string]*finding // by path
}

// finding is what stands at a path.
type finding struct {
	scalar
	exists bool
	value  any
	seen   string // see finding.show
}

func (d *Document) look(c *Condition) *finding {
	f := d.looked[c.Path]
	if f == nil {
		f = &finding{}
		f.value, f.exists = d.at(c.parts)
		f.scalar = scalarOf(f.value)
		if d.looked == nil {
			d.looked = map[string]*finding{}
		}
		d.looked[c.Path] = f
	}
	return f
}

// show returns the value as JSON, cut; empty if there is none.
func (f *finding) show() string {
	if !f.exists || f.seen != "" {
		return f.seen
	}
	text, err := json.Marshal(f.value)
	if err != nil { // it was read from JSON
		text = []byte("?")
	}
	if f.seen = string(text[:min(len(text), maxSeen)]); len(text) > maxSeen {
		f.seen = strings.ToValidUTF8(f.seen, "") + "…"
	}
	return f.seen
}

// DocumentOf returns the document of the data of an event, a valid JSON object.
func DocumentOf(data []byte) *Document { return &Document{text: data} }

// DocumentOfBody returns the document of the body that is sent. Its member data has the data of the event.
func DocumentOfBody(body []byte) *Document {
	var envelope struct {
		Data json.RawMessage `json:"data"`
	}
	if json.Unmarshal(body, &envelope) != nil {
		return &Document{}
	}
	return DocumentOf(envelope.Data)
}

// at returns the value at a path. A part names a member of an object, or is the index of an array.
func (d *Document) at(parts []string) (value any, exists bool) {
	if d.root == nil {
		if d.root, _ = decode(d.text); d.root == nil { // the text was valid when it was published
			d.root = map[string]any{}
		}
	}
	value = d.root
	for _, part := range parts {
		switch in := value.(type) {
		case map[string]any:
			if value, exists = in[part]; !exists {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(in) || strconv.Itoa(i) != part {
				return nil, false
			}
			value = in[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// decode reads one JSON value, and keeps its numbers as they were written.
func decode(text []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&value)
	return value, err
}
