package config

import (
	"strings"
)

// otherWords are words that people write for a setting or a flag that has another name.
var otherWords = map[string]string{
	"port": "listen", "p": "listen", "host": "listen", "addr": "listen", "address": "listen", "bind": "listen",
	"db": "path", "database": "path", "debug": "level", "loglevel": "level",
}

// Nearest returns the known name that an unknown name probably means, or "". Upper case and the characters - _ . make no difference. In
// this order, Nearest looks for the same name, for its end, its beginning and its middle, and for a name of which a few letters differ.
func Nearest(name string, known []string) string {
	if len(name) > 64 { // no name is longer, and the search costs the product of the lengths
		return ""
	}
	words := strings.FieldsFunc(strings.ToLower(strings.TrimPrefix(name, envPrefix)), isSeparator)
	meant := strings.Join(words, "")
	if len(words) > 0 && otherWords[words[len(words)-1]] != "" {
		meant = otherWords[words[len(words)-1]]
	}
	for i, matches := range []func(text, part string) bool{strings.HasSuffix, strings.HasPrefix, strings.Contains} {
		var found []string
		for _, candidate := range known {
			plain := strings.Join(strings.FieldsFunc(strings.ToLower(strings.TrimPrefix(candidate, envPrefix)), isSeparator), "")
			if plain == meant {
				return candidate
			}
			if len(meant) >= 3 && (i > 0 || len(meant) > 3) && matches(plain, meant) { // --url is no --server.base_url
				found = append(found, candidate)
			}
		}
		if len(found) == 1 || i == 0 && len(found) > 0 { // server.listen stands before metrics.listen
			return found[0]
		}
	}
	best, least := "", 2+len(strings.TrimPrefix(name, envPrefix))/4
	for _, candidate := range known {
		if d := distance(name, candidate); d < least {
			best, least = candidate, d
		}
	}
	return best
}

func isSeparator(r rune) bool { return strings.ContainsRune("-_.", r) }

// suggest returns the mend for an unknown name: the known name that was probably meant, or else the given mend.
func suggest(name string, known []string, mend string) string {
	if best := Nearest(name, known); best != "" {
		return "did you mean " + best + "? If not, " + mend
	}
	return mend
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j]+1, diagonal+1, replaced)
		}
	}
	return row[len(b)]
}
