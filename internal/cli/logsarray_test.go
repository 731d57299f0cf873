package cli

import (
	"bytes"
	"strings"
	"sync"
	"testing"
)

// TestLinesOfSeveralTasksStayWhole: however they are cut into writes, each line
// comes whole with its task in front.
func TestLinesOfSeveralTasksStayWhole(t *testing.T) {
	for _, test := range []struct{ written, want string }{
		{"one\ntwo\n", "7_1 | one\n7_1 | two\n"},
		{"no end", "7_1 | no end\n"},
		{"\n\n", "7_1 | \n7_1 | \n"},
		{"10%\r20%\r\ndone\r\n", "7_1 | 10%\n7_1 | 20%\n7_1 | done\n"},
		{"\r\rx\n", "7_1 | x\n"},
		{"\x1b[31mred\nstill\n", "7_1 | \x1b[31mred\x1b[0m\n7_1 | still\n"},
		{"end\n\x1b[0m", "7_1 | end\n"},
		{strings.Repeat("x", longestLine+1), "7_1 | " + strings.Repeat("x", longestLine) + "\n7_1 | x\n"},
		{"", ""},
	} {
		for _, piece := range []int{1, 3, len(test.written) + 1} {
			var out bytes.Buffer
			w := &lineWriter{mu: &sync.Mutex{}, out: &out, prefix: "7_1 | "}
			for rest := test.written; rest != ""; {
				n := min(piece, len(rest))
				if _, err := w.Write([]byte(rest[:n])); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if w.end(); out.String() != test.want {
				t.Errorf("%.40q in pieces of %d: %.80q, want %.80q", test.written, piece, out.String(), test.want)
			}
		}
	}
}
