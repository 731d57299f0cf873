package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"berth/internal/text"
)

func TestJSONDoesNotDriveATerminal(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		raw := rapid.String().Draw(r, "text") + rapid.SampledFrom([]string{"", "\u009b31m", "\x7f", "\U000e0001", "\u202e"}).Draw(r, "evil")
		var whole bytes.Buffer
		if err := printJSON(&whole, raw); err != nil {
			r.Fatal(err)
		}
		// The same in pieces.
		var out bytes.Buffer
		w := &text.JSONWriter{Out: &out}
		encoded, _ := json.Marshal(raw)
		for i := range encoded {
			_, _ = w.Write(encoded[i : i+1])
		}
		_ = w.Flush()
		for _, got := range []string{strings.TrimSuffix(whole.String(), "\n"), out.String()} {
			if got != text.Line(got) {
				r.Fatalf("%q is written as %q", raw, got)
			}
			var back string
			if err := json.Unmarshal([]byte(got), &back); err != nil || back != strings.ToValidUTF8(raw, "\ufffd") {
				r.Fatalf("%q became %q: %v", raw, back, err)
			}
		}
	})
}
