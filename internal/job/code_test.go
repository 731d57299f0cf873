package job

import (
	"regexp"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

var codeForm = regexp.MustCompile(`^[A-Z][A-Z0-9]{7}$`)

// TestCodesStandForNumbers: each number has a code of its own, and each code
// a number.
//
// seeds: M19
func TestCodesStandForNumbers(t *testing.T) {
	seen := map[string]int{}
	for n := range 20_000 {
		code := Code(strconv.Itoa(n))
		if before, twice := seen[code]; twice || !codeForm.MatchString(code) {
			t.Fatalf("job %d is %s, as job %d is", n, code, before)
		}
		seen[code] = n
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(0, codeCount-1).Draw(t, "number")
		id := strconv.FormatUint(n, 10)
		code := Code(id)
		if back, ok := FromCode(code); !codeForm.MatchString(code) || !ok || back != id {
			t.Fatalf("job %s is %s, which is job %s", id, code, back)
		}
		word := rapid.StringMatching(`[A-Za-z][A-Za-z0-9]{7}`).Draw(t, "code")
		id, ok := FromCode(word)
		if again, _ := FromCode(Code(id)); !ok || again != id {
			t.Fatalf("%s is job %s, and that is %s", word, id, Code(id))
		}
	})
}

func TestWhatIsNoCode(t *testing.T) {
	for _, word := range []string{"", "17", "12345678", "ABCDEFG", "ABCDEFGHI", "ABCDEFG!", "1BCDEFGH", "ÄBCDEFG", "ZQFFY52C_", "ZQFFY52C_x", "ZQFFY52C_1,2", "ZQFFY52C_0-3"} {
		if id, ok := FromCode(word); ok {
			t.Errorf("%q is job %s", word, id)
		}
	}
	if id, ok := FromCode(Code("17_3")); !ok || id != "17_3" {
		t.Errorf("the task is job %s", id)
	}
	if beyond := strconv.FormatUint(codeCount, 10); Code(beyond) != beyond || Code("x") != "x" {
		t.Error("what has no code is given one")
	}
}
