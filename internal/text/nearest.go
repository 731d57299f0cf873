package text

import (
	"fmt"
	"strings"
)

// Nearest is the known word closest to a mistyped one, or "" if none is close
// enough. It counts two swapped letters, the most common mistake, as one edit.
func Nearest(word string, known []string) string {
	const longest = 64 // bounds the cost, which grows with the square
	if word == "" || len(word) > longest {
		return ""
	}
	word = strings.ToLower(word)
	best, bestDistance := "", min(len(word)/2, len(word)/3+1)+1 // never most of a short word
	for _, candidate := range known {
		if candidate == "" || len(candidate) > longest {
			continue
		}
		if d := distance(word, strings.ToLower(candidate)); d < bestDistance && d < len(candidate) {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// distance counts the edits between two words: a letter added, lost or
// changed, or two neighbours swapped.
func distance(a, b string) int {
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	now := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			now[j] = min(change, last[j]+1, now[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}

// DidYouMean is a hint that names the nearest known word, if one is near.
func DidYouMean(word string, known []string) string {
	if near := Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return ""
}
