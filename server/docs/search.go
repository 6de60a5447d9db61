package docs

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxQuery is the most bytes of a text to search for.
const MaxQuery = 100

const (
	maxWords   = 8 // of a text to search for
	maxResults = 30
	before     = 60  // bytes of an excerpt before the first word
	after      = 180 // and after it
)

// section is a part of a page below one heading.
type section struct {
	Page, PageTitle, Anchor, Title string

	level int
	text  string
	index [3]string // Title, PageTitle and text, folded, each with a space before it
}

// indexed returns the section with its index.
func (s section) indexed() section {
	s.index = [3]string{" " + fold(s.Title), " " + fold(s.PageTitle), " " + fold(s.text)}
	return s
}

// result is a section that has all words.
type result struct {
	section
	Excerpt []part
	score   int
}

// part is a piece of an excerpt.
type part struct {
	Text string
	Hit  bool
}

// Search returns a page with the sections that have all words of a text, the best first. A word finds all words that begin with it.
func (s *Site) Search(query string) ([]byte, error) {
	words := strings.Fields(fold(query))
	words = words[:min(len(words), maxWords)]
	for i := range words {
		words[i] = stem(words[i])
	}
	v := view{Title: "Search", Query: query, template: "results"}
	for _, found := range s.sections {
		if score := found.score(words); score > 0 {
			v.Results = append(v.Results, result{section: found, score: score})
		}
	}
	slices.SortStableFunc(v.Results, func(a, b result) int { return cmp.Compare(b.score, a.score) })
	v.Results = v.Results[:min(len(v.Results), maxResults)]
	for i := range v.Results {
		v.Results[i].Excerpt = v.Results[i].excerpt(words)
	}
	return s.fill(v)
}

// score is 0 unless the section has all words. A word in a title weighs most.
func (s section) score(words []string) (score int) {
	title, page, text := s.index[0], s.index[1], s.index[2]
	for _, word := range words {
		word = " " + word
		weight := min(strings.Count(text, word), 5)
		if strings.Contains(title, word) {
			weight += 10
		}
		if weight > 0 && strings.Contains(page, word) {
			weight += 3
		}
		if weight == 0 {
			return 0
		}
		score += weight
	}
	return score
}

// excerpt returns the text around the first word that the section has, with the words marked.
func (s section) excerpt(words []string) (parts []part) {
	folded := s.index[2]
	first := len(folded)
	for _, word := range words {
		if at := strings.Index(folded, " "+word); at >= 0 {
			first = min(first, at)
		}
	}
	if first == len(folded) {
		first = 0
	}
	from, to := max(0, first-before), min(len(s.text), first+after)
	for from > 0 && (s.text[from-1] != ' ' || !utf8.RuneStart(s.text[from])) {
		from--
	}
	for to < len(s.text) && s.text[to] != ' ' {
		to++
	}
	for at := from; at < to; {
		next, size := to, 0
		for _, word := range words {
			if found := strings.Index(folded[at:to+1], " "+word); found >= 0 && at+found < next {
				next = at + found
				size = strings.IndexByte(folded[next+1:]+" ", ' ') // to the end of the word
			}
		}
		parts = append(parts, part{Text: s.text[at:next]})
		if size > 0 {
			parts = append(parts, part{s.text[next : next+size], true})
		}
		at = next + size
	}
	return parts
}

// stem returns the part of a word that it shares with its plural: "retry" finds "retries".
func stem(word string) string {
	for _, end := range []string{"ies", "y", "s"} {
		if short, found := strings.CutSuffix(word, end); found && len(short) > 2 {
			return short
		}
	}
	return word
}

// fold returns a text of the same length in which small letters, digits and underlines make words, and all else is a space.
func fold(text string) string {
	folded := []byte(text)
	for i, b := range folded {
		switch {
		case b >= 'A' && b <= 'Z':
			folded[i] = b - 'A' + 'a'
		case b == '_', b >= '0' && b <= '9', b >= 'a' && b <= 'z', b >= utf8.RuneSelf:
		default:
			folded[i] = ' '
		}
	}
	return string(folded)
}
