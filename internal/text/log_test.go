package text

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func filtered(pieces ...string) string {
	var out bytes.Buffer
	w := &LogWriter{Out: &out}
	for _, piece := range pieces {
		_, _ = w.Write([]byte(piece))
	}
	_ = w.Close()
	return out.String()
}

func TestWhatALogMayDoToATerminal(t *testing.T) {
	for _, test := range []struct{ name, log, shown string }{
		{"lines, tabs and returns pass", "a\tb\r\n10%\r20%\n", "a\tb\r\n10%\r20%\n"},
		{"text of any script passes", "größe 日本 👩‍🚀\n", "größe 日本 👩‍🚀\n"},
		{"colours pass, and end with the log", "\x1b[1;31mred\x1b[38:2::1:2:3m", "\x1b[1;31mred\x1b[38:2::1:2:3m\x1b[0m"},
		{"a query is not answered", "\x1b[6n", "␛[6n"},
		{"an escape at the very end", "x\x1b", "x␛"},
		{"a colour that never ends", "\x1b[" + strings.Repeat("1;", 100) + "m", "␛[" + strings.Repeat("1;", 100) + "m"},
		{"bytes that are no text", "\xff\x9b", "\ufffd\ufffd"},
	} {
		if got := filtered(test.log); got != test.shown {
			t.Errorf("%s: %q is shown as %q, want %q", test.name, test.log, got, test.shown)
		}
	}
}

func TestAColourMayComeInPieces(t *testing.T) {
	if got := filtered("a\x1b", "[3", "1", "mb\xe6", "\x97\xa5"); got != "a\x1b[31mb日\x1b[0m" {
		t.Errorf("%q", got)
	}
}

// TestALogIsFilteredAlikeInAnyPieces: where the network cuts it does not
// matter.
func TestAPlainLogHasNoColours(t *testing.T) {
	var out bytes.Buffer
	w := &LogWriter{Out: &out, Plain: true}
	for _, piece := range []string{"a\x1b[1;3", "1mred\x1b[0m", "\x1b[2J"} {
		_, _ = w.Write([]byte(piece))
	}
	_ = w.Close()
	if out.String() != "ared␛[2J" {
		t.Errorf("%q", out.String())
	}
}

func TestALogIsFilteredAlikeInAnyPieces(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		part := rapid.SampledFrom([]string{"\x1b[31m", "\x1b[0;1m", "\x1b", "[", "3", "1", ";", "m", "é", "日", "\xe6", "\x9b", "\n", "x", "\u009b"})
		log := strings.Join(rapid.SliceOfN(part, 0, 40).Draw(r, "log"), "")
		var pieces []string
		for rest := log; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(r, "piece")
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if whole, cut := filtered(log), filtered(pieces...); whole != cut {
			r.Fatalf("%q whole is %q, in pieces %q", log, whole, cut)
		}
		if rest := withoutColours(filtered(log)); strings.ContainsRune(rest, escape) {
			r.Fatalf("%q lets an escape through: %q", log, rest)
		}
	})
}
