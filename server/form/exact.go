package form

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

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
