package cli

import (
	"testing"

	"berth/internal/api"
	"berth/internal/job"
)

func TestAnyJobCanBeWrittenForTheEditorAndReadBack(t *testing.T) {
	for _, odd := range []string{
		"train", "yes", "null", "~", "0x10", "0123", "1e3", "1_000", "12:30", "- x", "a: b", "#c", "x #c", "'", `"`, `\n`, "é", "tab\t", "\x1b[31m", "{a}", "[a]", "*a", "&a", "!a", "%a", "@", "true",
	} {
		d := api.Detail{View: job.View{ID: "17", Name: odd, GPUs: 2, Command: &odd}, Settings: map[string]string{"setup": odd}, Env: map[string]string{"A": odd}}
		text := editable(&d)
		v, err := readEdited("job 17", text)
		switch {
		case odd == "tab\t" || odd == "\x1b[31m": // not a name, and refused as one
			if err == nil {
				t.Errorf("%q is a name", odd)
			}
		case err != nil:
			t.Errorf("%q: %v\n%s", odd, err, text)
		case v.command.Shell != odd || v.pairs["name"] != odd || v.pairs["setup"] != odd || v.pairs["env.A"] != odd || v.pairs["gpus"] != "2":
			t.Errorf("%q was read as %+v", odd, v)
		}
		if change, err := v.changes("job 17", text); err == nil && !change.None() {
			t.Errorf("%q: without a change, %+v", odd, change)
		}
	}
}

func TestAJobIsNotEditedIntoASweep(t *testing.T) {
	if _, err := readEdited("job 17", []byte("command: x {a}\nsweep: {axes: [{names: [a], rows: [[1]]}]}\n")); err == nil || err.Error() != "sweep cannot be edited" {
		t.Error(err)
	}
}
