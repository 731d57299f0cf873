package api

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

func TestStrictJSONRefusesWhatADecoderWouldChange(t *testing.T) {
	many := &strings.Builder{}
	for i := range 40 {
		many.WriteString(`"` + strings.Repeat("x", i+1) + `":1,`)
	}
	for name, test := range map[string]struct{ body, says string }{
		"a key twice":                     {`{"command":"a","name":"n","command":"b"}`, `the key "command" once`},
		"in another case":                 {`{"command":"a","Command":"b"}`, `the key "Command" once`},
		"with another letter for k":       {"{\"keep\":1,\"\u212aeep\":2}", "once, found it twice"},
		"as an escape":                    {`{"command":"a","\u0063ommand":"b"}`, `the key "command" once`},
		"deep inside":                     {`{"jobs":[{"a":{"b":1}},{"a":{"b":1,"b":2}}]}`, `the key "b" once`},
		"after an object of the same key": {`{"a":{"a":1},"a":2}`, `the key "a" once`},
		"among many":                      {`{` + many.String() + `"xxx":2}`, `the key "xxx" once`},
		"a variable twice":                {`{"env":{"A":"1","A":"2"}}`, `the key "A" once`},
		"a stray byte":                    {"{\"a\":\"\xff\"}", "found the byte 0xff"},
		"a cut character":                 {"{\"a\":\"\xc3\"}", "found the byte 0xc3"},
		"a stray byte outside a string":   {"{\"a\":1\xc3}", "found the byte 0xc3"},
		"half a pair":                     {`{"a":"x\ud800y"}`, "half of a surrogate pair"},
		"the other half":                  {`{"a":"\udc00"}`, "half of a surrogate pair"},
		"two first halves":                {`{"a":"\ud800\ud800"}`, "half of a surrogate pair"},

		"the same key in two objects":   {`[{"a":1},{"a":1}]`, ""},
		"variables that differ in case": {`{"jobs":[{"env":{"path":"1","PATH":"2"}}]}`, ""},
		"strings in an array":           {`{"a":["b","b"],"b":"b"}`, ""},
		"a whole pair":                  {`{"a":"\ud83d\ude00 \\ud800"}`, ""},
		"a character of four bytes":     {`{"a":"😀","ä":1}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, from := range []io.Reader{strings.NewReader(test.body), iotest.OneByteReader(strings.NewReader(test.body))} {
				passed, err := io.ReadAll(&strictJSON{from: from})
				switch {
				case test.says == "" && (err != nil || string(passed) != test.body):
					t.Errorf("passed on %q, %v", passed, err)
				case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
					t.Errorf("said %v, want %q", err, test.says)
				}
			}
		})
	}
}

// FuzzStrictJSON holds strictJSON to a slow version for JSON that is valid, and
// to passing on the rest unchanged or refusing it.
func FuzzStrictJSON(f *testing.F) {
	for _, seed := range []string{`{"a":{"b":[1,"\ud83d\ude00",{}]},"A":null}`, `{"a":1,"a":2}`, `["\udc00"]`, `{"env":{"a":1,"A":2}}`, `"`, `}{`, "\xff", `{"\`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		passed, err := io.ReadAll(&strictJSON{from: iotest.HalfReader(bytes.NewReader(body))})
		if err == nil && !bytes.Equal(passed, body) {
			t.Fatalf("passed on %q", passed)
		}
		if json.Valid(body) && (err == nil) != slowlyStrict(body) {
			t.Fatalf("%q: %v", body, err)
		}
	})
}

// slowlyStrict is what strictJSON refuses, found by decoding.
func slowlyStrict(body []byte) bool {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return utf8.Valid(body) && soundValue(d, body, false)
}

func soundValue(d *json.Decoder, body []byte, exact bool) bool {
	before := d.InputOffset()
	token, err := d.Token()
	if err != nil {
		return false
	}
	if value, isString := token.(string); isString {
		// A replacement character that nobody wrote stands for something lost.
		written := body[before:d.InputOffset()]
		meant := bytes.Count(written, []byte("\ufffd")) + bytes.Count(bytes.ToLower(written), []byte(`\ufffd`)) - bytes.Count(bytes.ToLower(written), []byte(`\\ufffd`))
		return strings.Count(value, "\ufffd") <= meant
	}
	delim, isDelim := token.(json.Delim)
	if !isDelim {
		return true
	}
	seen := map[string]bool{}
	for sound := true; ; {
		if !d.More() {
			_, _ = d.Token() // the end
			return sound
		}
		inner := false
		if delim == '{' {
			before := d.InputOffset()
			token, _ := d.Token()
			key := token.(string)
			sound = sound && strings.Count(key, "\ufffd") <= strings.Count(strings.ToLower(string(body[before:d.InputOffset()])), `fffd`)+bytes.Count(body[before:d.InputOffset()], []byte("\ufffd"))
			name := key
			if !exact {
				name = strings.Map(folded, key)
			}
			sound, inner = sound && !seen[name], name == "env"
			seen[name] = true
		}
		if !soundValue(d, body, inner && delim == '{') {
			return false
		}
	}
}
