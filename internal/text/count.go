package text

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Count writes a number with its noun: "1 job", "12 jobs", "2 retries".
func Count[N ~int | ~int64](n N, noun string) string {
	return strconv.FormatInt(int64(n), 10) + " " + Plural(n, noun)
}

// CountGrouped is Count with thousands separators: "1,200 jobs".
func CountGrouped[N ~int | ~int64](n N, noun string) string {
	return Grouped(n) + " " + Plural(n, noun)
}

// Plural is the form of the noun for a number.
func Plural[N ~int | ~int64](n N, noun string) string {
	if n == 1 {
		return noun
	}
	if stem, ends := strings.CutSuffix(noun, "y"); ends && !strings.ContainsAny(stem[len(stem)-1:], "aeiou") {
		return stem + "ies"
	}
	if strings.HasSuffix(noun, "s") {
		return noun + "es"
	}
	return noun + "s"
}

// Verb is the form of a regular verb, or of "are", for a number.
func Verb[N ~int | ~int64](n N, verb string) string {
	switch {
	case n != 1:
		return verb
	case verb == "are":
		return "is"
	case verb == "have":
		return "has"
	}
	return verb + "s"
}

// Grouped writes a number with thousands separators: 49,950.
func Grouped[N ~int | ~int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// Decimal writes a number with up to three decimals.
func Decimal(f float64) string { return strconv.FormatFloat(math.Round(f*1000)/1000, 'f', -1, 64) }

// Share writes a share of a GPU with three digits: 0.25.
func Share(f float64) string { return strconv.FormatFloat(f, 'g', 3, 64) }

// Some joins the first names and counts the rest: "a, b and 3 more".
func Some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Or joins the words of a choice: "pack or spread", "a, b or c".
func Or[S ~string](words []S) string {
	var b strings.Builder
	for i, word := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(word))
	}
	return b.String()
}

// Numbers joins numbers with commas: "0,1".
func Numbers(list []int) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}
