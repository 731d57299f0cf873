package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func filtered(pieces ...string) string {
	var out bytes.Buffer
	f := &logFilter{out: &out}
	for _, piece := range pieces {
		_, _ = f.Write([]byte(piece))
	}
	f.close()
	return out.String()
}

func TestWhatALogMayDoToATerminal(t *testing.T) {
	for _, test := range []struct{ name, log, shown string }{
		{"lines, tabs and returns pass", "a\tb\r\n10%\r20%\n", "a\tb\r\n10%\r20%\n"},
		{"text of any script passes", "größe 日本 👩‍🚀\n", "größe 日本 👩‍🚀\n"},
		{"colours pass, and end with the log", "\x1b[1;31mred\x1b[38:2::1:2:3m", "\x1b[1;31mred\x1b[38:2::1:2:3m\x1b[0m"},
		{"a title is shown, not set", "\x1b]0;owned\x07", "␛]0;owned␇"},
		{"a cursor is not moved", "\x1b[2J\x1b[H", "␛[2J␛[H"},
		{"a query is not answered", "\x1b[6n", "␛[6n"},
		{"an escape at the very end", "x\x1b", "x␛"},
		{"a colour that never ends", "\x1b[" + strings.Repeat("1;", 100) + "m", "␛[" + strings.Repeat("1;", 100) + "m"},
		{"a C1 control", "\u009b31m", "\ufffd31m"},
		{"bytes that are no text", "\xff\x9b", "\ufffd\ufffd"},
		{"text turned around", "a\u202eb", "a\ufffdb"},
		{"backspace and delete", "\b\x7f", "␈␡"},
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
		shown := strings.NewReplacer("\n", "", "\r", "").Replace(filtered(log))
		for at := strings.IndexByte(shown, 0x1b); at >= 0; at = strings.IndexByte(shown, 0x1b) {
			length, whole := colourAt([]byte(shown[at:]))
			if !whole {
				r.Fatalf("%q lets an escape through: %q", log, shown)
			}
			shown = shown[at+length:]
		}
	})
}

func TestJSONDoesNotDriveATerminal(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.String().Draw(r, "text") + rapid.SampledFrom([]string{"", "\u009b31m", "\x7f", "\U000e0001", "\u202e"}).Draw(r, "evil")
		var whole bytes.Buffer
		if err := printJSON(&whole, text); err != nil {
			r.Fatal(err)
		}
		// The same in pieces.
		var out bytes.Buffer
		w := &jsonWriter{out: &out}
		encoded, _ := json.Marshal(text)
		for i := range encoded {
			_, _ = w.Write(encoded[i : i+1])
		}
		_ = w.flush()
		for _, got := range []string{strings.TrimSuffix(whole.String(), "\n"), out.String()} {
			if got != printable(got) {
				r.Fatalf("%q is written as %q", text, got)
			}
			var back string
			if err := json.Unmarshal([]byte(got), &back); err != nil || back != strings.ToValidUTF8(text, "\ufffd") {
				r.Fatalf("%q became %q: %v", text, back, err)
			}
		}
	})
}
