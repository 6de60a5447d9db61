package config

import "strings"

// didYouMean is the part of a message that names the nearest of known, or empty where none is near enough to have been
// meant. prefix is what all have in common, which says nothing about how near they are.
func didYouMean(name, prefix string, known []string) string {
	name = strings.TrimPrefix(name, prefix)
	if len(name) > maxName {
		return ""
	}
	best, least := "", 1+len(name)/4
	for _, k := range known {
		if d := distance(name, strings.TrimPrefix(k, prefix)); d <= least {
			best, least = k, d-1
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

const maxName = 64 // no name is longer, and the distance costs the product of both lengths

// distance is the Levenshtein distance in bytes, with a swap of neighbours as one step.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, last[j+1]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
