package jobfile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSelections(t *testing.T) {
	for _, row := range []struct {
		words string
		want  Selection
	}{
		{"", Selection{}},
		{"7", Selection{IDs: []string{"7"}}},
		{"12 13,14", Selection{IDs: []string{"12", "13", "14"}}},
		{"1-3,7", Selection{IDs: []string{"7"}, Ranges: []Range{{From: 1, To: 3}}}},
		{"17_0", Selection{IDs: []string{"17_0"}}},
		{"17_0-3 17", Selection{IDs: []string{"17"}, Ranges: []Range{{Array: "17", From: 0, To: 3}}}},
		{"007 017_03 01_02-05", Selection{IDs: []string{"7", "17_3"}, Ranges: []Range{{Array: "1", From: 2, To: 5}}}},
		{"@", Selection{Last: []int{0}}},
		{"@~1 @~0 @,5", Selection{Last: []int{1, 0}, IDs: []string{"5"}}},
		{"3 3,03 1-2 01-2", Selection{IDs: []string{"3"}, Ranges: []Range{{From: 1, To: 2}}}},
		{"all", Selection{All: true}},
		{"ALL all", Selection{All: true}},
		{"train,7 'sweep-*' 3b train", Selection{IDs: []string{"7"}, Names: []string{"train", "'sweep-*'", "3b"}}},
		{"train-3 a_1 1_0-3x", Selection{Names: []string{"train-3", "a_1", "1_0-3x"}}},
	} {
		got, err := ParseSelection(strings.Fields(row.words))
		if err != nil {
			t.Errorf("%s: %v", row.words, err)
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s: %s", row.words, diff)
		}
		if got.Empty() != (row.words == "") {
			t.Errorf("%s: empty %v", row.words, got.Empty())
		}
	}
	for _, words := range []string{"3-1", "-1", "1-", "1--2", "1_", "_1", "1_2_3", "1_0-1_3", "@1", "@~", "@~x", "@~99999999", "all,3", "3 all", "1,", "1_0-3-5", "9999999999999999"} {
		if got, err := ParseSelection(strings.Fields(words)); err == nil {
			t.Errorf("%s: %+v", words, got)
		}
	}
	if _, err := ParseSelection([]string{""}); err == nil || !strings.HasPrefix(err.Error(), "expected job ids") {
		t.Errorf("an empty word: %v", err)
	}
	many := make([]string, maxSelected+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	if _, err := ParseSelection(many); err == nil || !strings.Contains(err.Error(), "use ranges") {
		t.Errorf("too many: %v", err)
	}
}

// TestASelectionReadsTheSameAgain: what was understood can be written and
// means the same.
func TestASelectionReadsTheSameAgain(t *testing.T) {
	part := rapid.OneOf(
		rapid.StringMatching(`[0-9]{1,4}`), rapid.StringMatching(`[0-9]{1,2}_[0-9]{1,2}`),
		rapid.StringMatching(`[0-9]-[0-9]`), rapid.StringMatching(`[0-9]_[0-9]-[0-9]`), rapid.StringMatching(`@(~[0-9])?`), rapid.StringMatching(`[a-z0-9*-]{1,4}`))
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(part).Draw(t, "words")
		first, err := ParseSelection(words)
		if err != nil {
			return
		}
		again, err := ParseSelection(strings.Fields(written(first)))
		if err != nil || !cmp.Equal(first, again) {
			t.Fatalf("%v: %+v, %+v, %v", words, first, again, err)
		}
	})
}

func written(s Selection) string {
	words := append([]string{}, s.IDs...)
	words = append(words, s.Names...)
	for _, r := range s.Ranges {
		prefix := ""
		if r.Array != "" {
			prefix = r.Array + "_"
		}
		words = append(words, fmt.Sprintf("%s%d-%d", prefix, r.From, r.To))
	}
	for _, back := range s.Last {
		words = append(words, lastWord(back))
	}
	return strings.Join(words, " ")
}
