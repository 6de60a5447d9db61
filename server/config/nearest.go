package config

import "strings"

// Nearest returns the known name that an unknown name probably means, or "". That is the first one that begins or ends with it. Otherwise it is
// the one with the fewest different letters. Upper case and the characters - _ . make no difference.
func Nearest(name string, known []string) (best string) {
	meant := bare(name)
	least := 2 + len(meant)/4
	for _, candidate := range known {
		text := bare(candidate)
		d := distance(meant, text)
		if len(meant) > 2 && strings.HasPrefix(text, meant) || len(meant) > 3 && strings.HasSuffix(text, meant) { // --url is no --server.base_url
			d = 0
		}
		if d < least {
			best, least = candidate, d
		}
	}
	return best
}

func bare(name string) string {
	return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(strings.TrimPrefix(name, envPrefix)))
}

// suggest returns the mend for an unknown name: the known name that was probably meant, or else the given mend.
func suggest(name string, known []string, mend string) string {
	if best := Nearest(name, known); best != "" {
		return "did you mean " + best + "? If not, " + mend
	}
	return mend
}

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
