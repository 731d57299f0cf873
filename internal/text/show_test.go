package text

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// hostile is one of each kind of thing that may not reach a terminal, and what
// the three ways of showing text make of it.
var hostile = []struct{ name, raw, line, escape, log string }{
	{"an escape sequence loses its teeth", "\x1b[2Jgone", "�[2Jgone", `\x1b[2Jgone`, "␛[2Jgone"},
	{"a colour", "\x1b[31mred", "�[31mred", `\x1b[31mred`, "\x1b[31mred\x1b[0m"},
	{"a title is not set", "\x1b]0;owned\x07", "�]0;owned�", `\x1b]0;owned\a`, "␛]0;owned␇"},
	{"a clipboard is not written", "\x1b]52;c;cm0gLXJm\x07", "�]52;c;cm0gLXJm�", `\x1b]52;c;cm0gLXJm\a`, "␛]52;c;cm0gLXJm␇"},
	{"a C1 control is one too", "a\u009b31m", "a�31m", `a\u009b31m`, "a�31m"},
	{"a newline cannot forge a line", "a\n[12:00:00] job 1 finished", "a�[12:00:00] job 1 finished", "a\n[12:00:00] job 1 finished", "a\n[12:00:00] job 1 finished"},
	{"a carriage return cannot write over one", "a\rb", "a�b", `a\rb`, "a\rb"},
	{"a tab has no width", "a\tb", "a�b", `a\tb`, "a\tb"},
	{"backspace and delete", "\b\x7f", "��", `\b\x7f`, "␈␡"},
	{"a NUL", "a\x00b", "a�b", `a\x00b`, "a␀b"},
	{"writing from the right", "a\u202eb\u2066c\u200fd\u061c", "a�b�c�d�", `a\u202eb\u2066c\u200fd\u061c`, "a�b�c�d�"},
	{"line and paragraph separators", "a\u2028b\u2029c\u0085d", "a�b�c�d", `a\u2028b\u2029c\u0085d`, "a�b�c�d"},
	{"what cannot be seen", "a\u200bb\u2060\ufeff\U000e0041", "a�b���", `a\u200bb\u2060\ufeff\U000e0041`, "a\u200bb\u2060\ufeff\U000e0041"},
	{"blanks that are not the blank", "a\u00a0b\u3000c", "a�b�c", `a\u00a0b\u3000c`, "a\u00a0b\u3000c"},
	{"private and unassigned characters", "\ue0b0\U000f0000\u0378", "���", `\ue0b0\U000f0000\u0378`, "\ue0b0\U000f0000\u0378"},
	{"bytes that are not text", "a\xff\xe6\x97b", "a���b", "a���b", "a���b"},
	{"half of a surrogate pair", "a\xed\xa0\x80b", "a���b", "a���b", "a���b"},
	{"text of any script stays", "größe 训练 שלום e\u0301 ✓ 🚀", "größe 训练 שלום e\u0301 ✓ 🚀", "größe 训练 שלום e\u0301 ✓ 🚀", "größe 训练 שלום e\u0301 ✓ 🚀"},
	{"plain words stay", `python train.py --lr 0.1 "a\b"`, `python train.py --lr 0.1 "a\b"`, `python train.py --lr 0.1 "a\b"`, `python train.py --lr 0.1 "a\b"`},
}

func TestWhatATerminalIsShown(t *testing.T) {
	for _, test := range hostile {
		t.Run(test.name, func(t *testing.T) {
			if got := Line(test.raw); got != test.line {
				t.Errorf("in a line %q is shown as %q, want %q", test.raw, got, test.line)
			}
			if got := Escape(test.raw); got != test.escape {
				t.Errorf("escaped %q is shown as %q, want %q", test.raw, got, test.escape)
			}
			if got := filtered(test.raw); got != test.log {
				t.Errorf("in a log %q is shown as %q, want %q", test.raw, got, test.log)
			}
			if got := Quote(test.raw, 200); Line(got) != got {
				t.Errorf("in quotes %q is shown as %q", test.raw, got)
			}
			table := Titled("A")
			table.Row(test.raw)
			if got := table.String(); got != "A\n"+test.line+"\n" {
				t.Errorf("in a table %q is shown as %q", test.raw, got)
			}
		})
	}
}

func TestWordsMakesOneLineOfSeveral(t *testing.T) {
	if got, want := Words("a\n  b\tc \u2028\x1b[2Jd\n"), "a b c �[2Jd"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSaidIsBounded(t *testing.T) {
	for raw, want := range map[string]string{
		"ok\x1b[2J":                      "ok�[2J",
		strings.Repeat("x", 1000):        strings.Repeat("x", 256),
		strings.Repeat("\x01", 1000):     strings.Repeat("�", 85),
		strings.Repeat("日", 100) + "end": strings.Repeat("日", 85),
	} {
		if got := Said(raw); got != want {
			t.Errorf("%q is shown as %q", raw, got)
		}
	}
}

func TestClip(t *testing.T) {
	for _, test := range []struct {
		s     string
		bytes int
		want  string
	}{{"abc", 3, "abc"}, {"abc", 2, "ab"}, {"日本", 6, "日本"}, {"日本", 5, "日"}, {"日本", 2, ""}, {"", 0, ""}, {"\x97\x97", 1, ""}} {
		if got := Clip(test.s, test.bytes); got != test.want {
			t.Errorf("%d bytes of %q are %q, want %q", test.bytes, test.s, got, test.want)
		}
	}
}

func TestMismatchShowsLittle(t *testing.T) {
	for found, want := range map[string]string{
		"":                      "expected one, found nothing",
		"a\x1bb":                `expected one, found "a\x1bb"`,
		strings.Repeat("x", 70): `expected one, found "` + strings.Repeat("x", 60) + `"…`,
	} {
		if got := Mismatch(found, "one").Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestComplaint(t *testing.T) {
	for _, test := range []struct{ what, hint, want string }{
		{"no room", "lower --gpus", "berth: no room\nhint: lower --gpus\n"},
		{"no room", "", "berth: no room\n"},
		{"a:1: bad\na:2: worse\n", "mend\nthem", "berth: a:1: bad\nberth: a:2: worse\nhint: mend�them\n"},
		{"\x1b[2J", "\r", "berth: �[2J\nhint: �\n"},
	} {
		if got := Complaint("berth", test.what, test.hint); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// FuzzShown: whatever comes in, no way of showing it lets anything through
// that could drive a terminal, and JSON reads back as it was.
func FuzzShown(f *testing.F) {
	for _, test := range hostile {
		f.Add(test.raw, 3)
	}
	f.Fuzz(func(t *testing.T, raw string, cut int) {
		line := Line(raw)
		if !harmless(line, "") || utf8.RuneCountInString(line) != utf8.RuneCountInString(raw) {
			t.Errorf("in a line %q is %q", raw, line)
		}
		if got := Line(line); got != line {
			t.Errorf("%q shown twice is %q", line, got)
		}
		for _, got := range []string{Words(raw), Quote(raw, 20), Cut(line, cut%50), Mismatch(raw, "x").Error()} {
			if !harmless(got, "") {
				t.Errorf("%q became %q", raw, got)
			}
		}
		if got := Escape(raw); !harmless(got, "\n") {
			t.Errorf("escaped %q is %q", raw, got)
		}
		if got := Cut(line, cut%50); Width(got) > max(0, cut%50) {
			t.Errorf("%q takes more than %d columns", got, cut%50)
		}
		at := 0
		if raw != "" {
			at = max(cut, -cut-1) % len(raw)
		}
		whole, pieces := filtered(raw), filtered(raw[:at], raw[at:])
		if whole != pieces {
			t.Errorf("the log %q is %q, in pieces %q", raw, whole, pieces)
		}
		if rest := withoutColours(whole); strings.ContainsFunc(rest, func(r rune) bool { return r != '\n' && r != '\r' && r != '\t' && drives(r) }) {
			t.Errorf("the log %q lets %q through", raw, rest)
		}
		checkJSON(t, raw)
	})
}

func checkJSON(t *testing.T, raw string) {
	t.Helper()
	encoded, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := &JSONWriter{Out: &out}
	for i := range encoded {
		_, _ = w.Write(encoded[i : i+1])
	}
	_ = w.Flush()
	if got := string(JSON(encoded)); got != out.String() || !harmless(got, "") {
		t.Errorf("%q is written as %q, in pieces %q", raw, got, out.String())
	}
	var back, want string
	if json.Unmarshal(out.Bytes(), &back) != nil || json.Unmarshal(encoded, &want) != nil || back != want {
		t.Errorf("%q reads back as %q", want, back)
	}
}

// harmless is the policy in other words: nothing of these categories.
func harmless(s, but string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune(but, r) && r != ' ' && (drives(r) || unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs, unicode.Z))
	})
}

// drives reports what a terminal obeys.
func drives(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

func withoutColours(s string) string {
	var b strings.Builder
	for s != "" {
		if s[0] == escape {
			if length, whole := colourAt([]byte(s)); whole {
				s = s[length:]
				continue
			}
		}
		b.WriteByte(s[0])
		s = s[1:]
	}
	return b.String()
}

// TestPlainASCIIIsWhatJSONKeeps: every byte, at every place of eight.
func TestPlainASCIIIsWhatJSONKeeps(t *testing.T) {
	for b := range 256 {
		for at := range 8 {
			data := []byte("12345678")
			data[at] = byte(b)
			if plain := plainASCII(data) == 8; plain != (b >= ' ' && b < 0x7f) {
				t.Fatalf("byte %#x at %d: plain %v", b, at, plain)
			}
		}
	}
}
