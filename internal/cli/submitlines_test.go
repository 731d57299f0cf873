package cli

import (
	"reflect"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
)

// TestLinesThatAreAlike: a line gets what its own block says, whatever the line
// before it says.
func TestLinesThatAreAlike(t *testing.T) {
	file, err := jobfile.Parse("jobs.txt", []byte(`a
b
[vram=1G env.A=1] c
[vram=1G env.A=1] d
[vram=1G env.A=2] e
[vram=1G cancel] f
[vram=1G] g
[after=7 name=x] h
[after=8] i
j
`), job.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	specs, lines, err := specsOf(file, api.Spec{Env: map[string]string{"B": "3"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range file.Lines {
		want, err := blockOf(&line.Spec, api.Spec{Env: map[string]string{"B": "3"}})
		want.Command = api.Command{Shell: line.Command}
		if err != nil || !reflect.DeepEqual(specs[i], want) {
			t.Errorf("line %d is %+v; want %+v, %v", line.Number, specs[i], want, err)
		}
		if want := (api.BatchLine{Number: i + 1, Cancel: line.Command == "f"}); !reflect.DeepEqual(lines[i], want) {
			t.Errorf("line %d is sent as %+v", line.Number, lines[i])
		}
	}
}
