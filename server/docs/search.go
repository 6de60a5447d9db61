package docs

import (
	"cmp"
	"slices"
	"strings"
)

// MaxQuery is the most bytes of a text to search for.
const MaxQuery = 100

const (
	maxResults = 30
	before     = 60  // bytes of an excerpt before the first word
	after      = 180 // and after it
)

// section is a part of a page below one heading.
type section struct {
	Page, PageTitle, Anchor, Title string

	level int
	text  string
	lower [2]string // Title and text in lower case, because anybody may search
}

// result is a section that has all words.
type result struct {
	section
	Excerpt string
	score   int
}

// Search returns a page with the sections that have all words of a text. Those that have them in the title come first.
func (s *Site) Search(query string) ([]byte, error) {
	words := strings.Fields(strings.ToLower(query))
	v := view{Title: "Search", Query: query, template: "results"}
	for _, found := range s.sections {
		if r := found.find(words); r.score > 0 {
			v.Results = append(v.Results, r)
		}
	}
	slices.SortStableFunc(v.Results, func(a, b result) int { return cmp.Compare(b.score, a.score) })
	v.Results = v.Results[:min(len(v.Results), maxResults)]
	return s.fill(v)
}

// find looks for words. The excerpt is the text around the first one. The score is 0 unless the section has all of them.
func (s section) find(words []string) result {
	r := result{section: s}
	title, text, first := s.lower[0], s.lower[1], len(s.text)
	for _, word := range words {
		at := strings.Index(text, word)
		if at >= 0 {
			first = min(first, at)
			r.score++
		}
		if strings.Contains(title, word) {
			r.score += 10
		} else if at < 0 {
			return result{}
		}
	}
	if first >= len(s.text) {
		first = 0
	}
	r.Excerpt = strings.ToValidUTF8(s.text[max(0, first-before):min(len(s.text), first+after)], "") // a cut may be within a character
	return r
}
